//! Checks the bucket of artifacts, if `artifacts.store` names one.

use std::{path::Path, time::Duration};

use soong::{Config, Environment};
use soong_storage::blob::{BlobLocation, BlobStore};

use super::Check;

const NAME: &str = "artifacts";
/// Maximum time of the check. A run waits longer, because it repeats failed requests for up to 30
/// s.
const TIMEOUT: Duration = Duration::from_secs(10);
const ADVICE: &str = "Check the name of the bucket, the address of the service and the credentials in the environment\n\
                      (AWS_… or GOOGLE_…). Without the bucket, large outputs are cut, and saving artifacts fails.";

/// Writes, reads and deletes a small object. `None` if artifacts are not in a bucket.
pub(super) async fn check(
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Option<Check> {
    // An invalid location is an error of the configuration, which is checked elsewhere.
    let location = BlobLocation::parse(&config.artifacts.store).ok()?;
    if matches!(location, BlobLocation::File | BlobLocation::Memory) {
        return None;
    }
    let broken = |why: String| Check::broken(NAME, why, ADVICE);
    let store = match BlobStore::open(home, &location, &|name| {
        environment.get(name).map(str::to_owned)
    }) {
        Ok(store) => store,
        Err(error) => return Some(broken(error.to_string())),
    };
    Some(match tokio::time::timeout(TIMEOUT, store.check()).await {
        Ok(Ok(())) => Check::ok(NAME, format!("{location} can be written and read")),
        Ok(Err(error)) => broken(format!("{location}: {error}")),
        Err(_) => broken(format!(
            "{location} did not answer within {} s",
            TIMEOUT.as_secs()
        )),
    })
}
