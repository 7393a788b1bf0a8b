//! Access to buckets of S3 and Google Cloud Storage.
//!
//! Settings have the names that the providers' own tools use. They are looked up through the
//! caller, because this crate reads no environment. If no credentials are given, `object_store`
//! gets them from the machine that it runs on, as those tools do. A failed request is retried up to
//! 10 times within 30 seconds; the caller may give up earlier.

use std::time::Duration;

use object_store::{RetryConfig, prefix::PrefixStore};

use super::{blob_error, location::Bucket, objects::Objects};
use crate::store::StoreError;

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Time during which a failed request is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Settings for S3 that are looked up in the environment.
#[cfg(feature = "s3")]
const S3_SETTINGS: [&str; 13] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_ENDPOINT_URL_STS",
];

/// Prepares a bucket of S3, or of an S3-compatible service at `AWS_ENDPOINT_URL_S3` or
/// `AWS_ENDPOINT_URL`.
#[cfg(feature = "s3")]
pub(super) fn s3(bucket: &Bucket, environment: Environment<'_>) -> Result<Objects, StoreError> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&bucket.name)
        .with_retry(retry())
        // Objects are deleted one by one, and not all S3-compatible services support bulk deletion.
        .with_disable_bulk_delete(true);
    for (name, value) in given_settings(&S3_SETTINGS, environment) {
        let key: AmazonS3ConfigKey = name.to_ascii_lowercase().parse().map_err(blob_error)?;
        builder = builder.with_config(key, value);
    }
    if let Some((_, endpoint)) =
        given_settings(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], environment).next()
    {
        // Plain HTTP only if the user wrote `http://`, for example for a server on the same
        // machine.
        let is_plain = endpoint.starts_with("http://");
        builder = builder.with_endpoint(endpoint).with_allow_http(is_plain);
    }
    let store = builder.build().map_err(blob_error)?;
    Ok(Objects::new(PrefixStore::new(
        store,
        bucket.prefix.as_str(),
    )))
}

/// Settings for Google Cloud Storage that are looked up in the environment.
#[cfg(feature = "gcs")]
const GCS_SETTINGS: [&str; 4] = [
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SKIP_SIGNATURE",
];

/// Prepares a bucket of Google Cloud Storage.
#[cfg(feature = "gcs")]
pub(super) fn gcs(bucket: &Bucket, environment: Environment<'_>) -> Result<Objects, StoreError> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&bucket.name)
        .with_retry(retry());
    for (name, value) in given_settings(&GCS_SETTINGS, environment) {
        let key: GoogleConfigKey = name.to_ascii_lowercase().parse().map_err(blob_error)?;
        builder = builder.with_config(key, value);
    }
    let store = builder.build().map_err(blob_error)?;
    Ok(Objects::new(PrefixStore::new(
        store,
        bucket.prefix.as_str(),
    )))
}

/// Returns the settings that are given; an empty value counts as missing.
fn given_settings<'a>(
    names: &'a [&'a str],
    environment: Environment<'a>,
) -> impl Iterator<Item = (&'a str, String)> {
    names.iter().filter_map(|name| {
        environment(name)
            .filter(|value| !value.is_empty())
            .map(|value| (*name, value))
    })
}

fn retry() -> RetryConfig {
    RetryConfig {
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    }
}
