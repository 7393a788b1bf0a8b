//! Facts that the servers of models have stated: asked before the first run of a process, and kept in the home.
//!
//! A server that is not a vendor's own is asked about a model when a run is accepted that needs it, once in each process
//! (300 ms at most). It is asked again after a connection failed, and after it rejected a prompt for its length: it may run
//! with other settings since. `model-facts.json` in the home holds the last answers, for runs that are resumed when the
//! process starts, and for `config show`. A file that cannot be read or written is no reason to fail: it is replaced or
//! left out, with a warning.
//!
//! Elsewhere: the questions (`openai/server_routes.rs` of `soong-model`), and how the facts are used (`gateways.rs`).

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use soong_model::{ServerFacts, server_address, server_facts};
use soong_protocol::ModelConfig;
use soong_text::Environment;
use tokio::sync::OnceCell;

/// Name of the file in the home.
const FILE: &str = "model-facts.json";

/// A model at a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServedModelKey {
    /// Address of the server, without user, password and query.
    pub(crate) address: String,
    pub(crate) model: String,
}

/// An entry of the file.
#[derive(Debug, Serialize, Deserialize)]
struct ServerEntry {
    address: String,
    model: String,
    #[serde(flatten)]
    facts: ServerFacts,
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FactsFile {
    servers: Vec<ServerEntry>,
}

/// Facts that the servers of models have stated.
pub(crate) struct ModelFacts {
    /// The file; `None`: nothing is kept.
    file: Option<PathBuf>,
    environment: Environment,
    servers: Mutex<BTreeMap<ServedModelKey, ServerFacts>>,
    /// Models whose server this process has asked, or is asking.
    asked: DashMap<ServedModelKey, Arc<OnceCell<()>>>,
}

impl ModelFacts {
    /// Reads the facts of a home. `None`: nothing is read and kept.
    pub(crate) fn load(home: Option<&Path>, environment: Environment) -> Self {
        let file = home.map(|home| home.join(FILE));
        let servers = file.as_deref().map(read).unwrap_or_default();
        Self { file, environment, servers: Mutex::new(servers), asked: DashMap::new() }
    }

    /// Returns the key of a model of a profile, if its server is asked about it. `is_known`: the model is in the table of
    /// models.
    pub(crate) fn key(&self, settings: &ModelConfig, model: &str, is_known: bool) -> Option<ServedModelKey> {
        let address = server_address(settings, &self.environment, is_known)?;
        Some(ServedModelKey { address, model: model.to_owned() })
    }

    /// Returns what the server of a model has stated, at the latest answer.
    pub(crate) fn get(&self, key: &ServedModelKey) -> Option<ServerFacts> {
        self.servers().get(key).copied()
    }

    /// Asks the server of a model, unless this process has asked it already, and returns what it states. A window that it
    /// does not state any more is kept.
    pub(crate) async fn look_up(&self, settings: &ModelConfig, key: &ServedModelKey) -> Option<ServerFacts> {
        let asked = Arc::clone(self.asked.entry(key.clone()).or_default().value());
        asked.get_or_init(|| self.ask(settings, key)).await;
        self.get(key)
    }

    async fn ask(&self, settings: &ModelConfig, key: &ServedModelKey) {
        let mut facts = server_facts(settings, &self.environment, &key.model).await;
        let known = self.get(key);
        if let Some(known) = known.filter(|known| known.program == facts.program) {
            // Ollama does not state the window of a model that is not loaded.
            facts.context_window = facts.context_window.or(known.context_window);
        }
        if facts == ServerFacts::default() || known == Some(facts) {
            return;
        }
        tracing::info!(address = key.address, model = key.model, ?facts, "a server has stated how it runs a model");
        let text = {
            let mut servers = self.servers();
            servers.insert(key.clone(), facts);
            file_text(&servers)
        };
        let Some(file) = self.file.clone() else { return };
        let written = tokio::task::spawn_blocking(move || write(&file, &text)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "{FILE} cannot be written; the servers of models are asked again at the next start");
        }
    }

    /// Lets the server of a model be asked again.
    pub(crate) fn ask_again(&self, key: &ServedModelKey) {
        self.asked.remove(key);
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<ServedModelKey, ServerFacts>> {
        // Each change is one insertion.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what the server of a profile has last stated about a model, according to the file in the home.
pub fn known_server_facts(
    home: &Path,
    settings: &ModelConfig,
    environment: &Environment,
    model: &str,
) -> Option<ServerFacts> {
    let facts = ModelFacts::load(Some(home), environment.clone());
    let key = facts.key(settings, model, false)?;
    facts.get(&key)
}

fn read(path: &Path) -> BTreeMap<ServedModelKey, ServerFacts> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the file cannot be read");
            return BTreeMap::new();
        }
    };
    let file: FactsFile = serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "the file is not valid; it will be replaced");
        FactsFile::default()
    });
    let mut servers = BTreeMap::new();
    for ServerEntry { address, model, facts } in file.servers {
        servers.insert(ServedModelKey { address, model }, facts);
    }
    servers
}

fn file_text(servers: &BTreeMap<ServedModelKey, ServerFacts>) -> String {
    let entry = |(key, facts): (&ServedModelKey, &ServerFacts)| ServerEntry {
        address: key.address.clone(),
        model: key.model.clone(),
        facts: *facts,
    };
    let file = FactsFile { servers: servers.iter().map(entry).collect() };
    // Texts and numbers can always be serialized.
    serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
}

/// Replaces the file as a whole.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = path.with_extension("json.new");
    std::fs::write(&draft, text)?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: &str, model: &str) -> ServedModelKey {
        ServedModelKey { address: address.to_owned(), model: model.to_owned() }
    }

    #[test]
    fn facts_of_a_home_are_read_and_a_broken_file_is_none() {
        let home = tempfile::tempdir().unwrap();
        let load = || ModelFacts::load(Some(home.path()), Environment::default());
        let facts = ServerFacts { context_window: Some(4_096), ..ServerFacts::default() };
        let mut servers = BTreeMap::new();
        servers.insert(key("http://127.0.0.1:1/v1", "m"), facts);
        write(&home.path().join(FILE), &file_text(&servers)).unwrap();
        assert_eq!(load().get(&key("http://127.0.0.1:1/v1", "m")), Some(facts));
        assert_eq!(load().get(&key("http://127.0.0.1:1/v1", "n")), None);
        std::fs::write(home.path().join(FILE), "{\"servers\": 1}").unwrap();
        assert_eq!(load().get(&key("http://127.0.0.1:1/v1", "m")), None);
    }
}
