//! Resolves the models of a run: its own, the one that writes summaries, and the utility model for
//! small tasks such as recall.

use std::{sync::Arc, time::Duration};

use soong_model::{ReasoningSupport, params::ReasoningParams};
use soong_protocol::{Effort, ErrorCode, ErrorInfo, ModelConfig, Preset, Provider, Run};

use super::RunResolver;
use crate::{
    gateways::ModelProfile,
    run::machine::spec::{AuxiliaryModel, AuxiliaryModels, Fallback, Fallbacks, ModelSpec},
};

/// Name of the offline model, which answers by fixed rules and costs nothing.
const OFFLINE: &str = "offline";
/// Answer tokens that a budget reserves per call, unless the profile or the model allows fewer. The
/// limits of many models are so high that a budget would pay for one call at a time.
const RESERVED_OUTPUT_TOKENS: u64 = 16_384;

/// The models that a run uses.
pub(super) struct Models {
    pub(super) model: ModelSpec,
    pub(super) fallbacks: Arc<Fallbacks>,
    pub(super) auxiliary: AuxiliaryModels,
}

/// The run's own model.
struct OwnModel<'a> {
    /// A profile or model name, as it is requested.
    wanted: &'a str,
    name: &'a str,
    profile: &'a ModelProfile,
    fallbacks: &'a Arc<Fallbacks>,
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
    /// `config_error` if the run has a budget in USD and the price of its own model or of the
    /// summary model is unknown.
    pub(super) fn models_of(&self, run: &Run, preset: &Preset) -> Result<Models, ErrorInfo> {
        let config = &*self.config;
        let wanted = preset.model.as_deref().unwrap_or(&run.settings.model);
        let (profile, model_name) = self.models.split_model(wanted)?;
        let name = self.models.model_name(profile, model_name);
        let profile = self.models.profile(profile);
        let reasoning = of_run_or_preset(run, preset);
        let fallbacks =
            self.fallbacks((&profile.name, &name), &profile.settings, run, reasoning)?;
        let fallbacks = Arc::new(fallbacks);
        let own = OwnModel {
            wanted,
            name: &name,
            profile: &profile,
            fallbacks: &fallbacks,
        };
        let (summary, summary_model) =
            self.helper(config.context.compact_profile.as_deref(), &own, run)?;
        let (utility, _) = self.helper(config.context.utility_profile.as_deref(), &own, run)?;
        let unpriced = [&name, &summary_model]
            .into_iter()
            .find(|model| self.models.prices(model).is_none());
        if let Some(model) = unpriced.filter(|_| run.settings.options.budget.usd.is_some()) {
            return Err(unknown_price(model));
        }
        let model = self.model_spec(&profile, name, run, reasoning)?;
        let summary_is_own_model = config.context.compact_profile.is_none();
        let recall_enabled = self.recalls(run, &utility);
        let reflects_before_summary =
            config.memory.reflect_before_summary && self.uses_memory(run, &summary);
        let auxiliary = AuxiliaryModels {
            summary,
            summary_is_own_model,
            utility,
            recall_enabled,
            reflects_before_summary,
        };
        Ok(Models {
            model,
            fallbacks,
            auxiliary,
        })
    }

    /// Returns the specification of a model. `wanted`: the reasoning that the run or its preset
    /// asks for.
    fn model_spec(
        &self,
        profile: &ModelProfile,
        name: String,
        run: &Run,
        wanted: ReasoningParams,
    ) -> Result<ModelSpec, ErrorInfo> {
        let settings = &profile.settings;
        let sizes = if name == OFFLINE {
            Sizes {
                context_window: u64::MAX,
                reserved_output_tokens: 0,
                answer_room: 0,
            }
        } else {
            self.sizes(profile, &name)
        };
        let wanted = if wanted.is_unset() {
            ReasoningParams::of_profile(settings)
        } else {
            wanted
        };
        let support = self.models.reasoning(&profile.name, &name);
        check_reasoning(wanted, support, &name)?;
        let mut params = run.settings.llm_params.clone();
        let _ = ReasoningParams::take(&mut params); // `wanted` contains it
        Ok(ModelSpec {
            provider: if profile.name == OFFLINE {
                Provider::Offline
            } else {
                settings.provider()
            }
            .as_str(),
            max_silence_ms: settings.max_silence_ms(),
            reserved_output_tokens: sizes.reserved_output_tokens,
            answer_room: sizes.answer_room,
            params,
            effort: wanted.effort.and_then(|effort| support.nearest(effort)),
            wanted_effort: wanted.effort,
            reasoning_budget_tokens: wanted.budget_tokens,
            context_window: sizes.context_window,
            bounds_output: settings.max_output_tokens.is_none()
                && name != OFFLINE
                && self.models.answers_without_limit(profile, &name),
            counter: self.models.token_counter(profile, &name),
            prices: self.models.prices(&name),
            cache: self.models.cache_rule(&profile.name, &name),
            is_long_cached: settings.long_cache && run.depth == 0,
            input: self.models.input_limits(profile, &name),
            name,
        })
    }

    /// Returns the fallbacks of a profile, without the model itself, which is given with its
    /// profile. Their own fallbacks are not used.
    ///
    /// # Errors
    /// `config_error` if a fallback does not exist, or if its price is unknown and the run has a
    /// budget in USD.
    fn fallbacks(
        &self,
        own: (&str, &str),
        settings: &ModelConfig,
        run: &Run,
        wanted: ReasoningParams,
    ) -> Result<Fallbacks, ErrorInfo> {
        let mut entries = Vec::new();
        for fallback in &settings.fallback {
            let invalid = |error: ErrorInfo| {
                let message = format!("model.fallback {:?}: {}", fallback.name(), error.message);
                ErrorInfo::new(ErrorCode::ConfigError, message)
            };
            let (profile, model_name) =
                self.models.split_model(fallback.name()).map_err(invalid)?;
            let name = self.models.model_name(profile, model_name);
            if (profile, name.as_str()) == own {
                continue;
            }
            let profile = self.models.profile(profile);
            // A reasoning that the fallback lacks must not keep it from answering.
            let spec = self.model_spec(&profile, name.clone(), run, wanted);
            let spec =
                spec.or_else(|_| self.model_spec(&profile, name, run, ReasoningParams::default()));
            let spec = spec.map_err(invalid)?;
            if spec.prices.is_none() && run.settings.options.budget.usd.is_some() {
                return Err(unknown_price(&spec.name));
            }
            entries.push(Fallback {
                name: fallback.name().to_owned(),
                reasons: fallback.reasons().to_vec(),
                model: spec,
            });
        }
        let after = settings.fallback_after_s;
        let cooldown = settings.fallback_cooldown_s;
        Ok(Fallbacks {
            entries,
            after: Duration::from_secs(after),
            cooldown: Duration::from_secs(cooldown),
        })
    }

    /// Returns the helper model of a profile, and its model name. Without a profile, the helper is
    /// the run's own model.
    fn helper(
        &self,
        profile: Option<&str>,
        own: &OwnModel<'_>,
        run: &Run,
    ) -> Result<(AuxiliaryModel, String), ErrorInfo> {
        let helper = |name: &str, model: &str, sizes: Sizes, fallbacks| AuxiliaryModel {
            name: name.to_owned(),
            max_prompt_tokens: sizes
                .context_window
                .saturating_sub(sizes.answer_room)
                .max(1),
            reserved_output_tokens: sizes.reserved_output_tokens,
            prices: self.models.prices(model),
            fallbacks,
        };
        let Some(wanted) = profile else {
            let sizes = self.sizes(own.profile, own.name);
            return Ok((
                helper(own.wanted, own.name, sizes, Arc::clone(own.fallbacks)),
                own.name.to_owned(),
            ));
        };
        let (profile, name) = self.models.split_model(wanted)?;
        let model = self.models.model_name(profile, name);
        let profile = self.models.profile(profile);
        // A profile that is not configured has the sizes of the run's own, and no fallbacks.
        let without_fallbacks = ModelConfig::default();
        let mut sized_profile = own.profile;
        let mut settings = &without_fallbacks;
        if profile.is_configured {
            sized_profile = &profile;
            settings = &profile.settings;
        }
        let sizes = self.sizes(sized_profile, &model);
        let fallbacks = self.fallbacks(
            (&profile.name, &model),
            settings,
            run,
            ReasoningParams::default(),
        )?;
        Ok((helper(wanted, &model, sizes, Arc::new(fallbacks)), model))
    }

    fn sizes(&self, profile: &ModelProfile, model: &str) -> Sizes {
        let settings = &profile.settings;
        let limits = self.models.limits(profile, model);
        let limit = limits.max_output_tokens.unwrap_or(RESERVED_OUTPUT_TOKENS);
        // The limit of a profile is sent with each request, that of the model is not.
        let reserved_output_tokens = settings
            .max_output_tokens
            .unwrap_or(limit.min(RESERVED_OUTPUT_TOKENS));
        let beyond_input = limits
            .max_input_tokens
            .map_or(0, |most| limits.context_window.saturating_sub(most));
        let answer_room = limit.min(limits.context_window / 5).max(beyond_input);
        Sizes {
            context_window: limits.context_window,
            reserved_output_tokens,
            answer_room,
        }
    }
}

/// Returns the reasoning that the run asks for, else its preset.
fn of_run_or_preset(run: &Run, preset: &Preset) -> ReasoningParams {
    let of_run = ReasoningParams::take(&mut run.settings.llm_params.clone()).unwrap_or_default();
    let of_preset = ReasoningParams {
        effort: preset.effort,
        budget_tokens: preset.reasoning_budget_tokens,
    };
    if of_run.is_unset() { of_preset } else { of_run }
}

fn unknown_price(model: &str) -> ErrorInfo {
    let message = format!(
        "a budget in USD cannot be enforced: the price of model {model:?} is unknown; add [prices.{model:?}] to the \
         configuration, or limit tokens instead"
    );
    ErrorInfo::new(ErrorCode::ConfigError, message)
}

/// Fails with `unsupported_capability` if the model takes a number of tokens instead of a level,
/// the reverse, or neither.
fn check_reasoning(
    wanted: ReasoningParams,
    support: ReasoningSupport,
    model: &str,
) -> Result<(), ErrorInfo> {
    let takes_level = support
        .levels
        .is_none_or(|levels| levels.iter().any(|level| *level != Effort::None));
    let takes_budget = support.takes_budget != Some(false);
    let wants_level = wanted.effort.is_some_and(|effort| effort != Effort::None);
    let instead = match (
        wants_level && !takes_level,
        wanted.budget_tokens.is_some() && !takes_budget,
    ) {
        (false, false) => return Ok(()),
        (true, _) if takes_budget => {
            "takes no level of reasoning (model.effort): set `reasoning_budget_tokens`"
        }
        (_, true) if takes_level => {
            "takes no reasoning budget (model.reasoning_budget_tokens): set `effort`"
        }
        _ => {
            "does not reason: remove `effort` and `reasoning_budget_tokens` (model.effort), or choose another model"
        }
    };
    let message = format!("model {model:?} {instead}");
    Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message))
}

/// Sizes of prompts and answers of a model, in tokens.
struct Sizes {
    context_window: u64,
    /// Answer tokens that a budget reserves per call.
    reserved_output_tokens: u64,
    /// Part of the window that is kept free for the answer.
    answer_room: u64,
}
