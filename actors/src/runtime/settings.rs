//! Settings of a new run in an existing session: options that the caller omits are inherited from
//! the previous run.
//!
//! Pure. Elsewhere: which run is the previous one (`admission.rs`), presets and configuration
//! (`run/resolver.rs`).

use soong_protocol::{
    Budget, ErrorCode, ErrorInfo, MessageContent, Run, RunMode, RunOptions, RunSettings, Setting,
    SettingUpdates,
};

use super::RunRequest;

/// Mode and settings of an earlier run.
#[derive(Debug, Clone)]
pub(super) struct InheritedSettings {
    pub(super) mode: RunMode,
    pub(super) settings: RunSettings,
}

impl InheritedSettings {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            mode: run.mode,
            settings: run.settings.clone(),
        }
    }
}

/// Returns the mode of a new run. `before` is the mode of the session so far.
pub(super) fn mode(start: &RunRequest, before: Option<RunMode>) -> RunMode {
    start.settings.mode.resolve(before).unwrap_or_default()
}

/// Returns the settings of a new run in `mode`: those that the caller sets, else those of the run
/// `before`.
///
/// Only an option that the caller sets or resets can extend what the run may do (SUB-6). `resumes`
/// is set if the run has no message. `configured` fills in limits that neither the caller nor the
/// earlier run sets.
pub(super) fn resolve(
    start: &RunRequest,
    mode: RunMode,
    resumes: bool,
    before: Option<&InheritedSettings>,
    configured: &Budget,
) -> RunSettings {
    let default_settings = RunSettings::default();
    let inherited = inherited(start, mode, before);
    let SettingUpdates {
        // Not one of the stored settings: see [`mode`].
        mode: _,
        preset,
        model,
        temperature,
        llm_params,
        max_turns,
        tools,
        auto_execute_tools,
        system_prompt,
        skills,
        budget,
        enable_memory,
    } = start.settings.clone();
    let given_budget = match budget {
        Setting::Inherit => inherited.options.budget,
        Setting::Reset => Budget::default(),
        Setting::Set(limits) => limits.or(inherited.options.budget),
    };
    let budget = given_budget.or(*configured);
    RunSettings {
        agent_type: preset
            .resolve(Some(inherited.agent_type))
            .unwrap_or(default_settings.agent_type),
        model: model
            .resolve(Some(inherited.model))
            .unwrap_or(default_settings.model),
        options: RunOptions {
            max_turns: max_turns.resolve(inherited.options.max_turns),
            tools: tools.resolve(inherited.options.tools),
            messages: start.messages.clone(),
            skills: skills.resolve(inherited.options.skills),
            expected_output_schema: start
                .expected_output_schema
                .clone()
                .or(inherited.options.expected_output_schema.filter(|_| resumes)),
            budget,
            timeout_ms: start
                .timeout_ms
                .or(inherited.options.timeout_ms.filter(|_| resumes)),
        },
        system_prompt: system_prompt.resolve(inherited.system_prompt),
        temperature: temperature.resolve(inherited.temperature),
        llm_params: llm_params
            .resolve(Some(inherited.llm_params))
            .unwrap_or_default(),
        auto_execute_tools: auto_execute_tools.resolve(inherited.auto_execute_tools),
        // Replaced by the admission if the message has images or files.
        task_content: MessageContent::default(),
        context: None,
        collaborator: inherited.collaborator,
        given_budget: (given_budget != budget).then_some(given_budget),
        driven: start.driven,
        continues: false,
        after_sequence: None,
        resumes: resumes && before.is_some(),
        compacts: start.compact,
        permissions: start.permissions.clone(),
        reflects: None,
        enable_memory: enable_memory.resolve(inherited.enable_memory),
        provisional_name: inherited.provisional_name,
    }
}

/// Returns the settings that a run inherits from the one before it, with the budget as the caller
/// gave it.
fn inherited(start: &RunRequest, mode: RunMode, before: Option<&InheritedSettings>) -> RunSettings {
    let default_settings = RunSettings::default();
    let Some(before) = before else {
        return default_settings;
    };
    let mut settings = before.settings.clone();
    settings.options.budget = settings.given_budget.unwrap_or(settings.options.budget);
    if before.mode != mode {
        settings.agent_type = default_settings.agent_type;
    }
    if start.settings.preset.is_set() {
        settings.system_prompt = None;
        settings.options.tools = None;
        settings.model = default_settings.model;
    }
    settings
}

/// Adds to an error that the wrong setting was inherited, unless the caller set the preset, the
/// tools or the skills.
pub(super) fn explain_inherited(start: &RunRequest, mut error: ErrorInfo) -> ErrorInfo {
    let settings = &start.settings;
    let is_kept =
        !settings.preset.is_set() && !settings.tools.is_set() && !settings.skills.is_set();
    let codes = [
        ErrorCode::ValidationError,
        ErrorCode::ToolNotAvailable,
        ErrorCode::SkillNotFound,
    ];
    if is_kept && codes.contains(&error.code) {
        error.message.push_str(
            ". The value comes from the session's last run: set another value, or reset it",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Map, json};
    use soong_protocol::{RunPermissions, RunSetting};

    use super::*;

    /// Returns a run with every setting set.
    fn full() -> InheritedSettings {
        let budget = Budget {
            tokens: Some(100),
            usd: None,
            model_calls: Some(7),
            ..Budget::default()
        };
        let given = Budget {
            tokens: Some(100),
            ..Budget::default()
        };
        InheritedSettings {
            mode: RunMode::Orchestrator,
            settings: RunSettings {
                agent_type: "orchestrator".into(),
                model: "m".into(),
                options: RunOptions {
                    max_turns: Some(3),
                    tools: Some(vec!["read".into()]),
                    skills: Some(vec!["planning".into()]),
                    expected_output_schema: Some(json!({"type": "object"})),
                    budget,
                    timeout_ms: Some(9),
                    ..RunOptions::default()
                },
                system_prompt: Some("You are terse.".into()),
                temperature: Some(0.5),
                llm_params: Map::from_iter([("seed".to_owned(), json!(7))]),
                auto_execute_tools: Some(false),
                given_budget: Some(given),
                enable_memory: Some(false),
                permissions: RunPermissions {
                    allow: vec!["write".into()],
                    unattended: true,
                    ..Default::default()
                },
                ..RunSettings::default()
            },
        }
    }

    fn further(start: RunRequest, before: &InheritedSettings) -> (RunMode, RunSettings) {
        let mode = mode(&start, Some(before.mode));
        let configured = Budget {
            model_calls: Some(9),
            ..Budget::default()
        };
        (
            mode,
            resolve(
                &start,
                mode,
                start.message.is_none(),
                Some(before),
                &configured,
            ),
        )
    }

    #[test]
    fn later_message_inherits_omitted_settings() {
        let before = full();
        let (mode, settings) = further(RunRequest::new("more"), &before);
        assert_eq!(mode, RunMode::Orchestrator);
        let want = RunSettings {
            options: RunOptions {
                expected_output_schema: None,
                timeout_ms: None,
                // The caller's part of the budget is kept; the other limits are those configured
                // now.
                budget: Budget {
                    tokens: Some(100),
                    model_calls: Some(9),
                    ..Budget::default()
                },
                ..before.settings.options.clone()
            },
            permissions: RunPermissions::default(),
            ..before.settings.clone()
        };
        assert_eq!(settings, want);
    }

    #[test]
    fn a_run_without_a_message_keeps_schema_and_time_limit() {
        let (_, settings) = further(RunRequest::resume("s"), &full());
        assert!(settings.resumes);
        assert_eq!(settings.options.timeout_ms, Some(9));
        assert!(settings.options.expected_output_schema.is_some());
    }

    #[test]
    fn new_preset_clears_prompt_tools_and_model() {
        let start = RunRequest::new("more").preset("orchestrator");
        let (_, settings) = further(start, &full());
        assert_eq!(
            (
                settings.system_prompt,
                settings.options.tools,
                settings.model.as_str()
            ),
            (None, None, "default")
        );
        assert_eq!(settings.options.max_turns, Some(3));
    }

    #[test]
    fn mode_change_selects_its_default_preset() {
        let start = RunRequest::new("more").mode(RunMode::Normal);
        let (_, settings) = further(start, &full());
        assert_eq!(settings.agent_type, "default");
        assert_eq!(settings.options.tools, Some(vec!["read".to_owned()]));
    }

    #[test]
    fn each_setting_is_reset_individually() {
        let before = full();
        let (_, inherited_settings) = further(RunRequest::new("more"), &before);
        let default_settings = RunSettings::default();
        let configured = Budget {
            model_calls: Some(9),
            ..Budget::default()
        };
        let with = |change: &dyn Fn(&mut RunOptions)| {
            let mut settings = inherited_settings.clone();
            change(&mut settings.options);
            settings
        };
        let mut tested = HashSet::new();
        for (setting, wanted) in [
            (
                RunSetting::SystemPrompt,
                RunSettings {
                    system_prompt: None,
                    ..inherited_settings.clone()
                },
            ),
            (RunSetting::Tools, with(&|options| options.tools = None)),
            (
                RunSetting::Preset,
                RunSettings {
                    agent_type: default_settings.agent_type.clone(),
                    ..inherited_settings.clone()
                },
            ),
            (
                RunSetting::Model,
                RunSettings {
                    model: default_settings.model.clone(),
                    ..inherited_settings.clone()
                },
            ),
            (
                RunSetting::LlmParams,
                RunSettings {
                    llm_params: Map::new(),
                    ..inherited_settings.clone()
                },
            ),
            (
                RunSetting::Temperature,
                RunSettings {
                    temperature: None,
                    ..inherited_settings.clone()
                },
            ),
            (
                RunSetting::MaxTurns,
                with(&|options| options.max_turns = None),
            ),
            (RunSetting::Skills, with(&|options| options.skills = None)),
            (
                RunSetting::EnableMemory,
                RunSettings {
                    enable_memory: None,
                    ..inherited_settings.clone()
                },
            ),
            (
                RunSetting::AutoExecuteTools,
                RunSettings {
                    auto_execute_tools: None,
                    ..inherited_settings.clone()
                },
            ),
            (
                RunSetting::Budget,
                RunSettings {
                    given_budget: Some(Budget::default()),
                    ..with(&|options| options.budget = configured)
                },
            ),
        ] {
            tested.insert(setting);
            let (mode, settings) = further(RunRequest::new("more").reset(setting), &before);
            assert_eq!(
                (mode, settings),
                (RunMode::Orchestrator, wanted),
                "{setting:?}"
            );
        }
        let (mode, settings) = further(RunRequest::new("more").reset(RunSetting::Mode), &before);
        tested.insert(RunSetting::Mode);
        let all: HashSet<RunSetting> = RunSetting::ALL.iter().copied().collect();
        assert_eq!(tested, all);
        assert_eq!(
            (mode, settings.agent_type.as_str()),
            (RunMode::Normal, "default")
        );
    }

    #[test]
    fn explicit_value_overrides_inherited_one_and_reset() {
        let budget = Budget {
            usd: Some("1".parse().unwrap()),
            ..Budget::default()
        };
        let start = RunRequest::new("more")
            .tools(["write"])
            .llm_params(Map::new())
            .budget(budget);
        let start = start.reset(RunSetting::Tools);
        let (_, settings) = further(start, &full());
        assert_eq!(settings.options.tools, Some(vec!["write".to_owned()]));
        assert!(settings.llm_params.is_empty());
        assert_eq!(
            (
                settings.options.budget.tokens,
                settings.options.budget.usd.is_some()
            ),
            (Some(100), true)
        );
    }
}
