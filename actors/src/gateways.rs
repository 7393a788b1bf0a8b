//! The gateways of a runtime, one per model profile, created on first use.
//!
//! The runtime supervisor starts the actor of a gateway. Elsewhere: the settings of a profile
//! (`gateways/profile.rs`), what a gateway does (`gateway.rs`).

mod profile;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use dashmap::DashMap;
use ractor::ActorRef;
use soong_model::{
    Model, ModelCatalog, ReasoningSupport, ServerFacts, ServerProgram,
    catalog::{CacheRule, ModelLimits},
    selection::split_model_name,
    tokens::TokenCounter,
};
use soong_protocol::{Config, ErrorInfo, InputKind, PriceConfig, Prices, Provider};
use tokio::sync::oneshot;

use crate::{
    actor_base::closing,
    gateway::Gateway,
    message_files::InputLimits,
    model_facts::{CountedModelKey, ModelFacts, ServedModelKey},
};

pub(crate) use profile::ModelProfile;

/// Creates the model of a profile on first use.
pub(crate) type ModelFactory =
    Box<dyn Fn(&str, &Config) -> Result<Arc<dyn Model>, ErrorInfo> + Send + Sync>;

/// Request to the runtime supervisor to start the actor of a gateway.
pub(crate) struct StartGateway {
    pub(crate) gateway: Gateway,
    /// Notified when the actor runs.
    pub(crate) started: oneshot::Sender<()>,
}

/// The model profiles of a runtime, and their gateways.
pub(crate) struct ModelGateways {
    config: Arc<Config>,
    catalog: Cow<'static, ModelCatalog>,
    /// Whether model names belong to the default profile, because its service is configured.
    default_takes_names: bool,
    make_model: ModelFactory,
    /// Model names of the profiles that a program registered a provider for.
    registered: BTreeMap<String, String>,
    /// Profiles that were used.
    profiles: DashMap<String, Arc<ModelProfile>>,
    gateways: DashMap<String, Gateway>,
    /// Facts that the servers of models state when they are asked.
    facts: ModelFacts,
    /// Context windows in tokens that services have stated in errors, by base URL and model. Many
    /// services state their window nowhere else.
    stated_windows: DashMap<(Option<String>, String), u64>,
    supervisor: OnceLock<ActorRef<StartGateway>>,
}

impl ModelGateways {
    /// `default_takes_names`: the service of the default profile is configured.
    pub(crate) fn new(
        config: Arc<Config>,
        catalog: Cow<'static, ModelCatalog>,
        default_takes_names: bool,
        make_model: ModelFactory,
        registered: BTreeMap<String, String>,
        facts: ModelFacts,
    ) -> Self {
        let default_takes_names = default_takes_names || registered.contains_key("default");
        Self {
            config,
            catalog,
            default_takes_names,
            make_model,
            registered,
            profiles: DashMap::new(),
            gateways: DashMap::new(),
            facts,
            stated_windows: DashMap::new(),
            supervisor: OnceLock::new(),
        }
    }

    /// Sets the actor that starts gateways.
    pub(crate) fn set_supervisor(&self, supervisor: ActorRef<StartGateway>) {
        let _ = self.supervisor.set(supervisor);
    }

    /// Splits the model of a run into a profile and a model name for it; see [`split_model_name`].
    pub(crate) fn split_model<'a>(
        &self,
        name: &'a str,
    ) -> Result<(&'a str, Option<&'a str>), ErrorInfo> {
        let is_profile = |name: &str| {
            self.config.model_profiles.contains_key(name) || self.registered.contains_key(name)
        };
        split_model_name(name, is_profile, self.default_takes_names, &self.catalog)
    }

    /// Returns a profile.
    pub(crate) fn profile(&self, name: &str) -> Arc<ModelProfile> {
        if let Some(profile) = self.profiles.get(name) {
            return Arc::clone(profile.value());
        }
        let profile = ModelProfile::new(name, &self.config, self.facts.environment());
        let profile = self
            .profiles
            .entry(name.to_owned())
            .or_insert(Arc::new(profile));
        Arc::clone(profile.value())
    }

    /// Returns the limits of a model in a profile. The window is the configured one, else that of
    /// the server, else that of the table; one that was stated in an error reduces the latter two.
    pub(crate) fn limits(&self, profile: &ModelProfile, model: &str) -> ModelLimits {
        let settings = &profile.settings;
        let mut limits = self.catalog.limits(settings, model);
        if settings.context_window.is_some() {
            return limits;
        }
        if let Some(facts) = self.known_facts(profile, model) {
            limits = limits.at_server(settings, &facts);
        }
        if let Some(stated) = self
            .stated_windows
            .get(&(settings.base_url.clone(), model.to_owned()))
        {
            limits.context_window = limits.context_window.min(*stated);
        }
        limits
    }

    /// Returns whether the server of a model writes an answer until its window is full, unless the
    /// request limits it.
    pub(crate) fn answers_without_limit(&self, profile: &ModelProfile, model: &str) -> bool {
        let facts = self.known_facts(profile, model);
        let program = facts.and_then(|facts| facts.program);
        matches!(
            program,
            Some(ServerProgram::LlamaCpp | ServerProgram::Ollama)
        )
    }

    /// Returns the key of a model at a server that is asked about it.
    fn server_key(&self, profile: &ModelProfile, model: &str) -> Option<ServedModelKey> {
        profile.server_key(model, self.catalog.find(model).is_some())
    }

    /// Returns what the server of a model has stated, if it was asked.
    fn known_facts(&self, profile: &ModelProfile, model: &str) -> Option<ServerFacts> {
        self.facts.get(&self.server_key(profile, model)?)
    }

    /// Asks the server of a profile about a model, if this process has not yet asked it, and adapts
    /// the limits of the gateway.
    async fn look_up_server(&self, profile: &ModelProfile, model: &str, gateway: &Gateway) {
        let Some(facts) = self.server_facts(profile, model).await else {
            return;
        };
        if facts.program.is_some() {
            gateway.stop_endless_text();
        }
        if let Some(concurrency) = facts
            .default_concurrency()
            .filter(|_| profile.settings.max_concurrency.is_none())
        {
            gateway.set_max_concurrency(concurrency);
        }
    }

    /// Returns what the server of a model states, if it is asked.
    async fn server_facts(&self, profile: &ModelProfile, model: &str) -> Option<ServerFacts> {
        if self.registered.contains_key(&profile.name) || profile.is_offline() {
            return None;
        }
        let key = self.server_key(profile, model)?;
        self.facts.look_up(&profile.settings, &key).await
    }

    /// Returns the context window of a model, after its server was asked. `name`: a profile or a
    /// model name. `None` if there is no such model, or if it has no window.
    pub(crate) async fn context_window(&self, name: &str) -> Option<u64> {
        let (profile, model) = self.profile_and_model(name).ok()?;
        if profile.is_offline() {
            return None;
        }
        self.server_facts(&profile, &model).await;
        Some(self.limits(&profile, &model).context_window)
    }

    /// Lets the server of a model be asked again before the next run, because it may have been
    /// restarted. `name`: a profile or a model name.
    pub(crate) fn ask_server_again(&self, name: &str) {
        let Ok((profile, model)) = self.profile_and_model(name) else {
            return;
        };
        if let Some(key) = self.server_key(&profile, &model) {
            self.facts.ask_again(&key);
            self.stated_windows
                .remove(&(profile.settings.base_url.clone(), model));
        }
    }

    /// Records the context window that the service of a model has stated in an error. `name`: a
    /// profile or a model name.
    pub(crate) fn record_stated_window(&self, name: &str, window: u64) {
        let Ok((profile, model)) = self.profile_and_model(name) else {
            return;
        };
        if let Some(key) = self.server_key(&profile, &model) {
            self.facts.ask_again(&key);
        }
        let known = self
            .stated_windows
            .insert((profile.settings.base_url.clone(), model), window);
        if known != Some(window) {
            tracing::info!(
                model = name,
                window,
                "a service has stated the context window of its model"
            );
        }
    }

    /// Returns the counter for the prompts of a model in a profile. Its estimates are corrected by
    /// what the service has counted so far.
    pub(crate) fn token_counter(&self, profile: &ModelProfile, model: &str) -> TokenCounter {
        let counter = TokenCounter::for_model(model);
        if self.registered.contains_key(&profile.name) {
            return counter;
        }
        counter.corrected_by(self.facts.token_ratio(&self.counted_model(profile, model)))
    }

    /// Records how many tokens the service of a model has counted in a prompt. `name`: a profile or
    /// a model name; `tokens`: the size of the prompt according to `counter`.
    pub(crate) async fn record_prompt(
        &self,
        name: &str,
        counter: TokenCounter,
        tokens: u64,
        counted: u64,
    ) {
        let Ok((profile, model)) = self.profile_and_model(name) else {
            return;
        };
        if self.registered.contains_key(&profile.name) || profile.is_offline() {
            return;
        }
        // Some servers cut off a prompt that is too long, and count what is left.
        if tokens > self.limits(&profile, &model).context_window / 10 * 9 {
            return;
        }
        if let Some(estimated) = counter.uncorrected(tokens) {
            self.facts
                .record_prompt(self.counted_model(&profile, &model), estimated, counted)
                .await;
        }
    }

    fn counted_model(&self, profile: &ModelProfile, model: &str) -> CountedModelKey {
        let address = self.server_key(profile, model).map(|key| key.address);
        CountedModelKey {
            address,
            model: model.to_owned(),
        }
    }

    /// Returns how the service of a profile caches the prompts of a model. `None` if that is not
    /// known.
    pub(crate) fn cache_rule(&self, profile: &str, model: &str) -> Option<CacheRule> {
        let is_own = self.registered.contains_key(profile);
        self.catalog
            .find(model)
            .and_then(|entry| entry.cache)
            .filter(|_| !is_own)
    }

    /// Returns the prices of a model: those of the configuration, else of the table. The offline
    /// model costs nothing.
    pub(crate) fn prices(&self, model: &str) -> Option<Prices> {
        let configured = self.config.prices.get(model).map(PriceConfig::prices);
        let offline = || (model == Provider::Offline.as_str()).then(Prices::default);
        configured
            .or_else(offline)
            .or_else(|| self.catalog.find(model)?.prices())
    }

    /// Returns the model name for calls of a profile: `name` if given, else that of the registered
    /// provider, else the configured one; empty if the profile is unknown.
    pub(crate) fn model_name(&self, profile: &str, name: Option<&str>) -> String {
        match (name, self.registered.get(profile)) {
            (Some(name), _) => name.to_owned(),
            (None, Some(registered)) => registered.clone(),
            (None, None) if profile == Provider::Offline.as_str() => profile.to_owned(),
            (None, None) => self.profile(profile).model_name().to_owned(),
        }
    }

    /// Returns the profile and the model name of `name`, a profile or a model name.
    fn profile_and_model(&self, name: &str) -> Result<(Arc<ModelProfile>, String), ErrorInfo> {
        let (profile, model) = self.split_model(name)?;
        Ok((self.profile(profile), self.model_name(profile, model)))
    }

    /// Returns the gateway for `name`, a profile or a model name, and the model to request from it.
    /// Waits until the gateway has an actor.
    ///
    /// # Errors
    /// `config_error` if the profile has no usable provider; `runtime_failed` if the gateway was
    /// given up; `closing`.
    pub(crate) async fn open<'a>(
        &self,
        name: &'a str,
    ) -> Result<(Gateway, Option<&'a str>), ErrorInfo> {
        let (profile, model) = self.split_model(name)?;
        let gateway = self.gateway(profile)?;
        if let Some(failure) = gateway.failure() {
            return Err(failure);
        }
        if !gateway.is_running() {
            let (started, ready) = oneshot::channel();
            let start = StartGateway {
                gateway: gateway.clone(),
                started,
            };
            let is_requested = self
                .supervisor
                .get()
                .is_some_and(|supervisor| supervisor.cast(start).is_ok());
            if !is_requested || ready.await.is_err() {
                return Err(closing());
            }
        }
        let name = self.model_name(profile, model);
        self.look_up_server(&self.profile(profile), &name, &gateway)
            .await;
        Ok((gateway, model))
    }

    fn gateway(&self, profile: &str) -> Result<Gateway, ErrorInfo> {
        if let Some(gateway) = self.get(profile) {
            return Ok(gateway);
        }
        let model = (self.make_model)(profile, &self.config)?;
        let mut settings = self.profile(profile).settings.clone();
        let is_built_in = profile == "offline" && !self.registered.contains_key(profile);
        if is_built_in || settings.provider() == Provider::Offline {
            // The offline model has no account with a rate limit.
            settings.requests_per_minute = 0;
            settings.tokens_per_minute = 0;
        }
        let fresh = Gateway::new(profile, model, &settings);
        Ok(self
            .gateways
            .entry(profile.to_owned())
            .or_insert(fresh)
            .value()
            .clone())
    }

    /// Returns the kinds and sizes of the content that the model of a profile takes. Only text if
    /// the profile has no usable provider, which opening it reports.
    pub(crate) fn input_limits(&self, profile: &ModelProfile, model: &str) -> InputLimits {
        let settings = &profile.settings;
        let Ok(gateway) = self.gateway(&profile.name) else {
            return InputLimits::of(model, settings, &[InputKind::Text]);
        };
        let mut kinds = gateway.inputs().to_vec();
        // A service carries all kinds that its API has; the model may take fewer.
        if !self.registered.contains_key(&profile.name) && settings.provider() != Provider::Offline
        {
            let accepted_kinds = self.limits(profile, model).input;
            kinds.retain(|kind| accepted_kinds.contains(kind));
        }
        InputLimits::of(model, settings, &kinds)
    }

    /// Returns the kinds and sizes of the content that a model takes, which is given as a profile
    /// or a model name.
    pub(crate) fn input_limits_of(&self, name: &str) -> InputLimits {
        let (profile, model) = self.split_model(name).unwrap_or(("default", Some(name)));
        self.input_limits(&self.profile(profile), &self.model_name(profile, model))
    }

    /// Returns what the model of a profile accepts about its reasoning. Unknown if the profile has
    /// no usable provider.
    pub(crate) fn reasoning(&self, profile: &str, model: &str) -> ReasoningSupport {
        self.gateway(profile)
            .map_or(ReasoningSupport::UNKNOWN, |gateway| {
                gateway.reasoning(model)
            })
    }

    /// Returns the gateway of a profile, if it has been used.
    pub(crate) fn get(&self, profile: &str) -> Option<Gateway> {
        self.gateways
            .get(profile)
            .map(|gateway| gateway.value().clone())
    }

    /// Returns the gateways that have been used.
    pub(crate) fn all(&self) -> Vec<Gateway> {
        self.gateways
            .iter()
            .map(|gateway| gateway.value().clone())
            .collect()
    }
}
