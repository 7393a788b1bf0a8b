//! Resolves the models of a run: its own, the one that writes summaries, and the utility model for small tasks such as
//! recall.

use soong_model::tokens::TokenCounter;
use soong_protocol::{Config, ErrorCode, ErrorInfo, ModelConfig, Preset, PriceConfig, Prices, Provider, Run};

use super::RunResolver;
use crate::run::machine::spec::{AuxiliaryModel, AuxiliaryModels, ModelSpec};

/// Name of the offline model, which answers by fixed rules and costs nothing.
const OFFLINE: &str = "offline";

/// The models that a run uses.
pub(super) struct Models {
    pub(super) model: ModelSpec,
    pub(super) auxiliary: AuxiliaryModels,
}

impl ModelSpec {
    pub(super) fn is_offline(&self) -> bool {
        self.name == OFFLINE
    }
}

impl RunResolver {
    /// Resolves the models of a run.
    ///
    /// # Errors
    /// `config_error` if the run has a budget in USD and the price of its own model or of the summary model is unknown.
    pub(super) fn models_of(&self, run: &Run, preset: &Preset) -> Result<Models, ErrorInfo> {
        let config = &*self.config;
        let wanted = preset.model.as_deref().unwrap_or(&run.settings.model);
        let (profile, model_name) = self.models.split_model(wanted);
        let name = self.models.model_name(profile, model_name);
        // A profile that the embedding program registered is not in the configuration: it gets the limits of `[model]`.
        let limits = config.profile(profile).unwrap_or_else(|| config.model.clone());
        let (summary, summary_model) = self.helper(config.context.compact_profile.as_deref(), wanted, &name, &limits);
        let (utility, _) = self.helper(config.context.utility_profile.as_deref(), wanted, &name, &limits);
        let unpriced = [&name, &summary_model].into_iter().find(|model| prices(config, model).is_none());
        if let Some(model) = unpriced.filter(|_| run.settings.options.budget.usd.is_some()) {
            let message = format!(
                "a budget in USD cannot be enforced: the price of model {model:?} is unknown; add [prices.{model:?}] \
                 to the configuration, or limit tokens instead"
            );
            return Err(ErrorInfo::new(ErrorCode::ConfigError, message));
        }
        let (context_window, max_output_tokens) = match name == OFFLINE {
            true => (u64::MAX, 0),
            false => (limits.context_window, limits.max_output_tokens),
        };
        let model = ModelSpec {
            provider: match limits.provider {
                _ if profile == OFFLINE => "offline",
                Provider::Offline => "offline",
                Provider::Openai => "openai",
            },
            timeout_ms: limits.timeout_ms,
            max_output_tokens,
            context_window,
            counter: TokenCounter::for_model(&name),
            prices: prices(config, &name),
            input: self.models.input_limits(profile, &name, &limits),
            name,
        };
        let summary_is_own_model = config.context.compact_profile.is_none();
        Ok(Models { model, auxiliary: AuxiliaryModels { summary, summary_is_own_model, utility } })
    }

    /// Returns the helper model of a profile, and its model name. Without a profile, the helper is the run's own model.
    fn helper(
        &self,
        profile: Option<&str>,
        wanted: &str,
        own_model: &str,
        own: &ModelConfig,
    ) -> (AuxiliaryModel, String) {
        let (limits, model) = match profile.map(|name| self.models.split_model(name)) {
            Some((profile, other)) => (self.config.profile(profile), self.models.model_name(profile, other)),
            None => (None, own_model.to_owned()),
        };
        let limits = limits.as_ref().unwrap_or(own);
        let helper = AuxiliaryModel {
            name: profile.unwrap_or(wanted).to_owned(),
            max_prompt_tokens: limits.context_window.saturating_sub(limits.max_output_tokens).max(1),
            max_output_tokens: limits.max_output_tokens,
            prices: prices(&self.config, &model),
        };
        (helper, model)
    }
}

fn prices(config: &Config, model: &str) -> Option<Prices> {
    let offline = || (model == OFFLINE).then(Prices::default);
    config.prices.get(model).map(PriceConfig::prices).or_else(offline)
}
