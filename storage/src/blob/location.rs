//! Location of artifact bytes: parses and checks the setting `artifacts.store`.
//!
//! Pure: opens nothing, and reads no environment (see `cloud.rs`).

use std::fmt;

use object_store::path::Path;

/// Location of artifact bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BlobLocation {
    /// Files under the home.
    #[default]
    File,
    /// In memory of this process only; for tests.
    Memory,
    /// A bucket of S3, or of an S3-compatible service.
    S3(Bucket),
    /// A bucket of Google Cloud Storage.
    Gcs(Bucket),
}

/// A bucket, and the prefix of its object names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Name of the bucket.
    pub name: String,
    /// Prefix without `/` at either end; empty if the objects are at the top level.
    pub prefix: String,
}

/// Reason why a text is not a valid location, or not one that this build supports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobLocationError {
    /// The kind of location is unknown.
    #[error(
        "{0:?} is not an artifact location: use \"file\", \"memory\", \"s3://BUCKET/PREFIX\" or \"gs://BUCKET/PREFIX\""
    )]
    Unknown(String),
    /// The name of the bucket is missing.
    #[error("{0:?} does not name a bucket: use {1}BUCKET/PREFIX")]
    NoBucket(String, &'static str),
    /// The name of the bucket has an invalid character.
    #[error("{0:?} is not a valid bucket name: use letters, digits, '.', '-' and '_'")]
    BadBucket(String),
    /// The prefix has an empty segment, `.`, `..` or a `#`.
    #[error(
        "{0:?} is not a valid prefix: use non-empty segments separated by '/', none of them \".\" or \"..\", and no '#'"
    )]
    BadPrefix(String),
    /// The location needs a cargo feature that this build lacks.
    #[error(
        "{location} requires a build with the cargo feature {feature:?}: cargo install … --features {feature}"
    )]
    FeatureMissing {
        /// The location.
        location: String,
        /// The feature.
        feature: &'static str,
    },
}

impl BlobLocation {
    /// Parses the setting `artifacts.store`.
    ///
    /// # Errors
    /// [`BlobLocationError`], which says what to write instead, or which feature is missing.
    pub fn parse(text: &str) -> Result<Self, BlobLocationError> {
        let location = match text {
            "file" => Self::File,
            "memory" => Self::Memory,
            _ => {
                if let Some(rest) = text.strip_prefix(S3) {
                    Self::S3(Bucket::parse(text, rest, S3)?)
                } else if let Some(rest) = text.strip_prefix(GCS) {
                    Self::Gcs(Bucket::parse(text, rest, GCS)?)
                } else {
                    return Err(BlobLocationError::Unknown(text.to_owned()));
                }
            }
        };
        match location.missing_feature() {
            Some(feature) => Err(BlobLocationError::FeatureMissing {
                location: location.to_string(),
                feature,
            }),
            None => Ok(location),
        }
    }

    /// Returns the cargo feature that this location needs and this build lacks.
    pub(super) fn missing_feature(&self) -> Option<&'static str> {
        match self {
            Self::S3(_) if !cfg!(feature = "s3") => Some("s3"),
            Self::Gcs(_) if !cfg!(feature = "gcs") => Some("gcs"),
            _ => None,
        }
    }
}

const S3: &str = "s3://";
const GCS: &str = "gs://";

impl fmt::Display for BlobLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Memory => f.write_str("memory"),
            Self::S3(bucket) => write!(f, "{S3}{bucket}"),
            Self::Gcs(bucket) => write!(f, "{GCS}{bucket}"),
        }
    }
}

impl Bucket {
    fn parse(text: &str, rest: &str, scheme: &'static str) -> Result<Self, BlobLocationError> {
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(BlobLocationError::NoBucket(text.to_owned(), scheme));
        }
        if !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        {
            return Err(BlobLocationError::BadBucket(name.to_owned()));
        }
        let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
        if prefix.starts_with('/')
            || trimmed.ends_with('/')
            || trimmed.contains('#')
            || Path::parse(trimmed).is_err()
        {
            return Err(BlobLocationError::BadPrefix(prefix.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            prefix: trimmed.to_owned(),
        })
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "{}{between}{}", self.name, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_round_trips_through_text() {
        for (text, name, prefix, back) in [
            ("s3://b", "b", "", "s3://b"),
            ("s3://b/", "b", "", "s3://b"),
            (
                "s3://my-bucket.eu/team/soong",
                "my-bucket.eu",
                "team/soong",
                "s3://my-bucket.eu/team/soong",
            ),
            ("gs://b_1/x/", "b_1", "x", "gs://b_1/x"),
        ] {
            let bucket = Bucket {
                name: name.into(),
                prefix: prefix.into(),
            };
            let want = if text.starts_with("s3") {
                BlobLocation::S3(bucket)
            } else {
                BlobLocation::Gcs(bucket)
            };
            assert_eq!(want.to_string(), back, "{text}");
            match want.missing_feature() {
                None => assert_eq!(BlobLocation::parse(text), Ok(want), "{text}"),
                Some(feature) => {
                    let error = BlobLocation::parse(text).unwrap_err().to_string();
                    assert!(
                        error.contains(&format!("--features {feature}")),
                        "{text}: {error}"
                    );
                }
            }
        }
        for (text, want) in [
            ("file", BlobLocation::File),
            ("memory", BlobLocation::Memory),
        ] {
            assert_eq!(
                (BlobLocation::parse(text), want.to_string().as_str()),
                (Ok(want.clone()), text)
            );
        }
    }

    #[test]
    fn invalid_location_is_rejected_with_advice() {
        for (text, want) in [
            ("", "use \"file\""),
            ("File", "use \"file\""),
            ("/var/artifacts", "use \"file\""),
            ("https://b.s3.amazonaws.com", "use \"file\""),
            ("s3:b", "use \"file\""),
            ("s3://", "use s3://BUCKET"),
            ("s3:///prefix", "use s3://BUCKET"),
            ("gs://", "use gs://BUCKET"),
            ("s3://me@b/x", "\"me@b\" is not a valid bucket name"),
            ("s3://b/a//b", "\"a//b\" is not a valid prefix"),
            ("s3://b//", "\"/\" is not a valid prefix"),
            ("s3://b/../x", "\"../x\" is not a valid prefix"),
            ("s3://b/a#1", "\"a#1\" is not a valid prefix"),
        ] {
            let error = BlobLocation::parse(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
