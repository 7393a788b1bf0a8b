//! Facts about models: what their servers have stated, and how their services count tokens. They
//! are kept in the home.
//!
//! A server that is not a vendor's own is asked about a model when a run is accepted that needs it,
//! once in each process (300 ms at most). It is asked again after a connection failed, and after it
//! rejected a prompt for its length: it may run with other settings since. `model-facts.json` in
//! the home holds the last answers, for runs that are resumed when the process starts, and for
//! `config show`. A file that cannot be read or written is no reason to fail: it is replaced or
//! left out, with a warning.
//!
//! Elsewhere: the questions (`actors/model/src/openai/server_routes.rs`), and how the facts are
//! used (`gateways.rs`).

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use soong_model::{ServerFacts, server_address, server_facts, tokens::TokenRatio};
use soong_protocol::ModelConfig;
use soong_text::Environment;
use tokio::{sync::Mutex as AsyncMutex, time::Instant};

/// Name of the file in the home.
const FILE: &str = "model-facts.json";

/// Change of a ratio of tokens that is worth a write, in thousandths.
const RATIO_STEP: u64 = 20;

/// Minimum time before a server that has not stated the window of a model is asked again.
const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// A model at a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServedModelKey {
    /// Address of the server, without user, password and query.
    pub(crate) address: String,
    pub(crate) model: String,
}

/// A model whose prompts a service counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountedModelKey {
    /// Address of a server that is asked about its models: it may call any model by this name.
    pub(crate) address: Option<String>,
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

/// An entry of the file: how much a service deviates from the estimates of its tokens.
#[derive(Debug, Serialize, Deserialize)]
struct RatioEntry {
    /// Absent for a service of a vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    model: String,
    #[serde(flatten)]
    ratio: TokenRatio,
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FactsFile {
    servers: Vec<ServerEntry>,
    token_ratios: Vec<RatioEntry>,
}

/// The ratio of a model, and the one in the file.
#[derive(Debug, Clone, Copy, Default)]
struct KnownRatio {
    current: TokenRatio,
    written: Option<TokenRatio>,
}

/// The facts in memory.
#[derive(Debug, Default)]
struct FactsState {
    servers: BTreeMap<ServedModelKey, ServerFacts>,
    token_ratios: BTreeMap<CountedModelKey, KnownRatio>,
}

/// Facts about models.
pub(crate) struct ModelFacts {
    /// The file; `None`: nothing is kept.
    file: Option<PathBuf>,
    environment: Environment,
    state: Arc<Mutex<FactsState>>,
    /// Models whose server this process has asked, and when. Locked while it is asked.
    look_ups: DashMap<ServedModelKey, Arc<AsyncMutex<Option<Instant>>>>,
    /// Locked while the file is written.
    writing: Arc<Mutex<()>>,
}

impl ModelFacts {
    /// Reads the facts of a home. `None`: nothing is read and kept.
    pub(crate) fn load(home: Option<&Path>, environment: Environment) -> Self {
        let file = home.map(|home| home.join(FILE));
        let state = file.as_deref().map(read).unwrap_or_default();
        Self {
            file,
            environment,
            state: Arc::new(Mutex::new(state)),
            look_ups: DashMap::new(),
            writing: Arc::default(),
        }
    }

    /// Returns the environment in which the servers are asked.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns what the server of a model has stated, at the latest answer.
    pub(crate) fn get(&self, key: &ServedModelKey) -> Option<ServerFacts> {
        self.state().servers.get(key).copied()
    }

    /// Asks the server of a model, unless this process has asked it already, and returns what it
    /// states. What it does not state any more is kept.
    pub(crate) async fn look_up(
        &self,
        settings: &ModelConfig,
        key: &ServedModelKey,
    ) -> Option<ServerFacts> {
        let asked_at = Arc::clone(self.look_ups.entry(key.clone()).or_default().value());
        let mut asked_at = asked_at.lock().await;
        let known = self.get(key);
        // Ollama states the window of a model only after it was loaded.
        let is_incomplete =
            known.is_some_and(|known| known.program.is_some() && known.context_window.is_none());
        let is_due = asked_at.is_none_or(|at| is_incomplete && at.elapsed() > ASK_INTERVAL);
        if is_due {
            self.ask(settings, key).await;
            *asked_at = Some(Instant::now());
        }
        self.get(key)
    }

    async fn ask(&self, settings: &ModelConfig, key: &ServedModelKey) {
        let mut facts = server_facts(settings, &self.environment, &key.model).await;
        let known = self.get(key);
        if let Some(known) =
            known.filter(|known| facts.program.is_none() || facts.program == known.program)
        {
            facts.program = facts.program.or(known.program);
            facts.context_window = facts.context_window.or(known.context_window);
            facts.slots = facts.slots.or(known.slots);
            facts.takes_tools = facts.takes_tools.or(known.takes_tools);
        }
        if let (Some(configured), Some(stated)) = (settings.context_window, facts.context_window)
            && configured > stated
        {
            let model = &key.model;
            tracing::warn!(
                model,
                configured,
                stated,
                "context_window is larger than that of the server"
            );
        }
        if facts == ServerFacts::default() || known == Some(facts) {
            return;
        }
        tracing::info!(
            address = key.address,
            model = key.model,
            ?facts,
            "a server has stated how it runs a model"
        );
        self.state().servers.insert(key.clone(), facts);
        self.save().await;
    }

    /// Returns how many tokens the service of a model counts for each estimated one.
    pub(crate) fn token_ratio(&self, key: &CountedModelKey) -> TokenRatio {
        self.state()
            .token_ratios
            .get(key)
            .map(|ratio| ratio.current)
            .unwrap_or_default()
    }

    /// Records the size of a prompt: its tokens as they were estimated, and as the service has
    /// counted them.
    pub(crate) async fn record_prompt(&self, key: CountedModelKey, estimated: u64, counted: u64) {
        let is_changed = {
            let mut state = self.state();
            let ratio = state.token_ratios.entry(key).or_default();
            ratio.current.add(estimated, counted);
            let written = ratio.written.unwrap_or_default();
            let is_changed = ratio.current.permille().abs_diff(written.permille()) >= RATIO_STEP;
            if is_changed {
                ratio.written = Some(ratio.current);
            }
            is_changed
        };
        if is_changed {
            self.save().await;
        }
    }

    /// Writes the file. It is written even if the caller stops to wait.
    async fn save(&self) {
        let Some(file) = self.file.clone() else {
            return;
        };
        let state = Arc::clone(&self.state);
        let writing = Arc::clone(&self.writing);
        let write = move || {
            // One write at a time, so that the last one has all facts.
            let _writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
            let text = file_text(&state.lock().unwrap_or_else(PoisonError::into_inner));
            write(&file, &text)
        };
        let written = tokio::task::spawn_blocking(write).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "{FILE} cannot be written; its facts are collected again at the next start");
        }
    }

    /// Lets the server of a model be asked again.
    pub(crate) fn ask_again(&self, key: &ServedModelKey) {
        self.look_ups.remove(key);
    }

    fn state(&self) -> MutexGuard<'_, FactsState> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what the server of a profile has last stated about a model, according to the file in the
/// home.
pub fn known_server_facts(
    home: &Path,
    settings: &ModelConfig,
    environment: &Environment,
    model: &str,
) -> Option<ServerFacts> {
    let address = server_address(settings, environment, false)?;
    let key = ServedModelKey {
        address,
        model: model.to_owned(),
    };
    ModelFacts::load(Some(home), environment.clone()).get(&key)
}

fn read(path: &Path) -> FactsState {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return FactsState::default(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the file cannot be read");
            return FactsState::default();
        }
    };
    let file: FactsFile = serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "the file is not valid; it will be replaced");
        FactsFile::default()
    });
    let mut state = FactsState::default();
    for ServerEntry {
        address,
        model,
        facts,
    } in file.servers
    {
        state
            .servers
            .insert(ServedModelKey { address, model }, facts);
    }
    for RatioEntry {
        address,
        model,
        ratio,
    } in file.token_ratios
    {
        state.token_ratios.insert(
            CountedModelKey { address, model },
            KnownRatio {
                current: ratio,
                written: Some(ratio),
            },
        );
    }
    state
}

fn file_text(state: &FactsState) -> String {
    let entry = |(key, facts): (&ServedModelKey, &ServerFacts)| ServerEntry {
        address: key.address.clone(),
        model: key.model.clone(),
        facts: *facts,
    };
    let mut file = FactsFile {
        servers: state.servers.iter().map(entry).collect(),
        ..FactsFile::default()
    };
    for (key, ratio) in &state.token_ratios {
        if let Some(written) = ratio.written {
            let CountedModelKey { address, model } = key.clone();
            file.token_ratios.push(RatioEntry {
                address,
                model,
                ratio: written,
            });
        }
    }
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

    #[tokio::test]
    async fn ratios_are_kept_when_they_change() {
        let home = tempfile::tempdir().unwrap();
        let load = || ModelFacts::load(Some(home.path()), Environment::default());
        let key = |model: &str| CountedModelKey {
            address: None,
            model: model.to_owned(),
        };
        let facts = load();
        facts.record_prompt(key("m"), 1_000, 1_010).await;
        assert!(
            !home.path().join(FILE).exists(),
            "a small change is not written"
        );
        for _ in 0..9 {
            facts.record_prompt(key("m"), 1_000, 1_500).await;
        }
        let ratio = facts.token_ratio(&key("m"));
        let stored_ratio = load().token_ratio(&key("m"));
        assert!(
            ratio.permille() > 1_440
                && stored_ratio.permille().abs_diff(ratio.permille()) < RATIO_STEP,
            "{ratio:?} {stored_ratio:?}"
        );
        assert_eq!(load().token_ratio(&key("n")), TokenRatio::default());
    }

    fn key(address: &str, model: &str) -> ServedModelKey {
        ServedModelKey {
            address: address.to_owned(),
            model: model.to_owned(),
        }
    }

    #[test]
    fn facts_of_a_home_are_read_and_a_broken_file_is_none() {
        let home = tempfile::tempdir().unwrap();
        let load = || ModelFacts::load(Some(home.path()), Environment::default());
        let facts = ServerFacts {
            context_window: Some(4_096),
            ..ServerFacts::default()
        };
        let mut state = FactsState::default();
        state
            .servers
            .insert(key("http://127.0.0.1:1/v1", "m"), facts);
        write(&home.path().join(FILE), &file_text(&state)).unwrap();
        assert_eq!(load().get(&key("http://127.0.0.1:1/v1", "m")), Some(facts));
        assert_eq!(load().get(&key("http://127.0.0.1:1/v1", "n")), None);
        std::fs::write(home.path().join(FILE), "{\"servers\": 1}").unwrap();
        assert_eq!(load().get(&key("http://127.0.0.1:1/v1", "m")), None);
    }
}
