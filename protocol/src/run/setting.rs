//! The settings that a further run of a session inherits, each declared once.
//!
//! The names of the settings ([`RunSetting`]), their values in a request ([`SettingUpdates`]), the
//! fields of the body that starts a run, and their schema follow from one table. Elsewhere: which
//! value a run gets (`actors/src/runtime/settings.rs`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::RunMode;
use crate::Budget;

/// A setting of a request to start a run. In JSON, an absent field inherits, and `null` resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Setting<T> {
    /// Takes the value of the session's last run. In a new session, the configured value.
    #[default]
    Inherit,
    /// Takes the configured value.
    Reset,
    /// Takes this value.
    Set(T),
}

impl<T> Setting<T> {
    /// Returns whether the request neither sets nor resets the setting.
    pub fn is_inherited(&self) -> bool {
        matches!(self, Self::Inherit)
    }

    /// Returns whether the request resets the setting.
    pub fn is_reset(&self) -> bool {
        matches!(self, Self::Reset)
    }

    /// Returns whether the request sets the setting.
    pub fn is_set(&self) -> bool {
        matches!(self, Self::Set(_))
    }

    /// Returns the value that the request sets.
    pub fn as_set(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Inherit | Self::Reset => None,
        }
    }

    /// Returns the value that is set, or the inherited value. `None`, also of a setting that is reset,
    /// is the configured value.
    pub fn resolve(self, inherited: Option<T>) -> Option<T> {
        match self {
            Self::Inherit => inherited,
            Self::Reset => None,
            Self::Set(value) => Some(value),
        }
    }

    /// Resets the setting, unless it is set.
    pub fn reset_unless_set(&mut self) {
        if self.is_inherited() {
            *self = Self::Reset;
        }
    }
}

impl<T> From<T> for Setting<T> {
    fn from(value: T) -> Self {
        Self::Set(value)
    }
}

impl<T> From<Option<T>> for Setting<T> {
    /// Sets a value that is present; otherwise the setting is inherited.
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Inherit, Self::Set)
    }
}

impl<T: Serialize> Serialize for Setting<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_set().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Setting<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::deserialize(deserializer)?;
        Ok(value.map_or(Self::Reset, Self::Set))
    }
}

/// Declares the settings. A row is `field "name" VARIANT: TYPE`, with attributes for the schema of a
/// body.
///
/// The first argument is a `$`: this macro declares another macro, and cannot write a `$` itself. The
/// second is the name of that macro, which declares a struct with a field for each setting.
macro_rules! run_settings {
    ($dollar:tt $with_settings:ident; $(
        $(#[doc = $doc:literal])*
        $(#[schema($($schema:tt)*)])?
        $field:ident $name:tt $variant:ident: $type:ty;
    )*) => {
        /// A setting that a further run of a session inherits.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RunSetting {
            $($(#[doc = $doc])* $variant,)*
        }

        impl RunSetting {
            /// All settings.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name of the setting in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the description of the setting.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),*).trim(),)*
                }
            }
        }

        /// The settings of a request: each is inherited, reset or set.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct SettingUpdates {
            $($(#[doc = $doc])* pub $field: Setting<$type>,)*
        }

        impl SettingUpdates {
            /// Resets a setting, unless it is set.
            pub fn reset_unless_set(&mut self, setting: RunSetting) {
                match setting {
                    $(RunSetting::$variant => self.$field.reset_unless_set(),)*
                }
            }

            /// Returns whether a setting is reset.
            pub fn is_reset(&self, setting: RunSetting) -> bool {
                match setting {
                    $(RunSetting::$variant => self.$field.is_reset(),)*
                }
            }
        }

        /// Declares a struct with the given fields, and a field for each setting.
        macro_rules! $with_settings {
            (
                $dollar(#[$dollar meta:meta])*
                pub struct $dollar body:ident { $dollar($dollar own_fields:tt)* }
            ) => {
                $dollar(#[$dollar meta])*
                pub struct $dollar body {
                    $dollar($dollar own_fields)*
                    $(
                        $(#[doc = $doc])*
                        #[cfg_attr(
                            feature = "openapi",
                            schema(value_type = Option<$type> $(, $($schema)*)?)
                        )]
                        #[serde(
                            rename = $name,
                            default,
                            skip_serializing_if = "Setting::is_inherited"
                        )]
                        pub $field: Setting<$type>,
                    )*
                }

                impl $dollar body {
                    /// Takes the settings out of the body, which then inherits all of them.
                    pub fn take_settings(&mut self) -> SettingUpdates {
                        SettingUpdates {
                            $($field: std::mem::take(&mut self.$field),)*
                        }
                    }

                    /// Resets a setting, unless it is set.
                    pub fn reset_unless_set(&mut self, setting: RunSetting) {
                        match setting {
                            $(RunSetting::$variant => self.$field.reset_unless_set(),)*
                        }
                    }
                }
            };
        }
    };
}

run_settings! {
    $ with_run_settings;
    /// Mode of the run: which kind of agent leads it.
    mode "mode" Mode: RunMode;
    /// Preset of the run.
    preset "agent_type" Preset: String;
    /// Model profile, or a model name of the default profile.
    model "model" Model: String;
    /// Sampling temperature, 0 to 2.
    #[schema(minimum = 0, maximum = 2)]
    temperature "temperature" Temperature: f64;
    /// Further sampling parameters, sent unchanged with each model call: `top_p`, `seed`, `stop`, …
    llm_params "llm_params" LlmParams: Map<String, Value>;
    /// Maximum number of turns.
    #[schema(minimum = 0, maximum = 4294967295u64)]
    max_turns "max_iterations" MaxTurns: u32;
    /// Tools that the run and all runs below it may use. Default: all configured tools.
    tools "tools" Tools: Vec<String>;
    /// Whether the run executes the tool calls of its model. If `false`, the run completes when the
    /// model requests the first tool calls, and its record holds them as `tool_calls`.
    auto_execute_tools "auto_execute_tools" AutoExecuteTools: bool;
    /// System prompt that replaces the preset's.
    system_prompt "system_prompt" SystemPrompt: String;
    /// Skills that the agent loads first, or has in its system prompt if it lacks the tool `skill`.
    /// Default: the preset's.
    skills "skills" Skills: Vec<String>;
    /// Budget of the run and all runs below it.
    budget "budget" Budget: Budget;
    /// Whether a new conversation receives the experiences of earlier runs.
    enable_memory "enable_memory" EnableMemory: bool;
}

#[expect(
    clippy::single_component_path_imports,
    reason = "a path to the macro for other modules"
)]
pub(crate) use with_run_settings;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::StartBody;

    #[test]
    fn body_inherits_resets_and_sets_each_setting() {
        let empty: StartBody = serde_json::from_value(json!({})).unwrap();
        assert_eq!(serde_json::to_value(&empty).unwrap(), json!({}));
        for setting in RunSetting::ALL {
            let name = setting.as_str();
            let mut body: StartBody = serde_json::from_value(json!({ name: null })).unwrap();
            assert_eq!(serde_json::to_value(&body).unwrap(), json!({ name: null }));
            let mut reset = StartBody::default();
            reset.reset_unless_set(*setting);
            let settings = body.take_settings();
            assert_eq!(settings, reset.take_settings(), "{name}");
            assert!(settings.is_reset(*setting), "{name}");
            assert!(!setting.about().is_empty(), "{name}");
        }
        let mut body: StartBody =
            serde_json::from_value(json!({ "max_iterations": 3, "tools": null })).unwrap();
        body.reset_unless_set(RunSetting::MaxTurns);
        let settings = body.take_settings();
        assert_eq!(settings.max_turns, Setting::Set(3));
        assert_eq!(settings.tools, Setting::Reset);
        assert_eq!(settings.model, Setting::Inherit);
        assert_eq!(settings.max_turns.resolve(Some(9)), Some(3));
        assert_eq!(settings.tools.resolve(Some(Vec::new())), None);
        assert_eq!(
            settings.model.resolve(Some("m".to_owned())).as_deref(),
            Some("m")
        );
    }

    /// Another table, with a setting that no run has.
    #[allow(unreachable_pub, reason = "the table declares public items")]
    mod shades {
        use serde::{Deserialize, Serialize};

        use super::super::Setting;

        run_settings! {
            $ with_shade;
            /// Shade of the answer.
            shade "color" Shade: u8;
        }

        with_shade! {
            /// A body with the setting.
            #[derive(Default, Serialize, Deserialize)]
            #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
            pub struct Body {}
        }
    }

    #[test]
    fn setting_is_declared_in_one_place() {
        let [setting] = shades::RunSetting::ALL else {
            panic!("one setting is declared");
        };
        assert_eq!(setting.as_str(), "color");
        assert_eq!(setting.about(), "Shade of the answer.");
        let mut body: shades::Body = serde_json::from_value(json!({ "color": 7 })).unwrap();
        assert_eq!(serde_json::to_value(&body).unwrap(), json!({ "color": 7 }));
        body.reset_unless_set(*setting);
        let mut settings = body.take_settings();
        assert_eq!(settings.shade, Setting::Set(7));
        settings.shade = Setting::Inherit;
        settings.reset_unless_set(*setting);
        assert!(settings.is_reset(*setting));
        #[cfg(feature = "openapi")]
        {
            let schema = <shades::Body as utoipa::PartialSchema>::schema();
            let schema = serde_json::to_value(schema).unwrap();
            let description = &schema["properties"]["color"]["description"];
            assert_eq!(description, "Shade of the answer.", "{schema}");
        }
    }
}
