//! Buckets: how S3 and Google Cloud Storage are reached.
//!
//! Settings have the names that the providers' own tools use, and are looked up through the caller:
//! this crate reads no environment. Where none is given, `object_store` asks the machine that it runs
//! on, as those tools do. A request is tried again for half a minute; who waits may give up before.

use std::time::Duration;

use object_store::{RetryConfig, prefix::PrefixStore};

use super::{failed, objects::Objects, place::Bucket};
use crate::store::StoreError;

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How long a request that failed is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// What S3 is reached with, as given in the environment.
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

/// Prepares a bucket of S3, or of what speaks like it at `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`.
#[cfg(feature = "s3")]
pub(super) fn s3(bucket: &Bucket, environment: Environment<'_>) -> Result<Objects, StoreError> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&bucket.name)
        .with_retry(retry())
        // One object is removed at a time, and not all that speak like S3 know another way.
        .with_disable_bulk_delete(true);
    for (name, value) in given(&S3_SETTINGS, environment) {
        let key: AmazonS3ConfigKey = name.to_ascii_lowercase().parse().map_err(failed)?;
        builder = builder.with_config(key, value);
    }
    if let Some((_, endpoint)) = given(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], environment).next() {
        // Only where somebody wrote `http://` themselves, as for a server on the same machine.
        let is_plain = endpoint.starts_with("http://");
        builder = builder.with_endpoint(endpoint).with_allow_http(is_plain);
    }
    let store = builder.build().map_err(failed)?;
    Ok(Objects::new(PrefixStore::new(store, bucket.prefix.as_str())))
}

/// What Google Cloud Storage is reached with, as given in the environment.
#[cfg(feature = "gcs")]
const GCS_SETTINGS: [&str; 4] =
    ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE"];

/// Prepares a bucket of Google Cloud Storage.
#[cfg(feature = "gcs")]
pub(super) fn gcs(bucket: &Bucket, environment: Environment<'_>) -> Result<Objects, StoreError> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

    let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(&bucket.name).with_retry(retry());
    for (name, value) in given(&GCS_SETTINGS, environment) {
        let key: GoogleConfigKey = name.to_ascii_lowercase().parse().map_err(failed)?;
        builder = builder.with_config(key, value);
    }
    let store = builder.build().map_err(failed)?;
    Ok(Objects::new(PrefixStore::new(store, bucket.prefix.as_str())))
}

/// The settings that are given; an empty one is none.
fn given<'a>(names: &'a [&'a str], environment: Environment<'a>) -> impl Iterator<Item = (&'a str, String)> {
    names.iter().filter_map(|name| environment(name).filter(|value| !value.is_empty()).map(|value| (*name, value)))
}

fn retry() -> RetryConfig {
    RetryConfig { retry_timeout: RETRY, ..RetryConfig::default() }
}
