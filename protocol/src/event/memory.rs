//! Events of experiences: their use in a new conversation, and what was learned (MEM-3 … MEM-5).

use crate::{ErrorInfo, ExperienceId, Tags, Usage, Usd, event_macro::events, is_zero};

events! {
    /// A use or a change of experiences.
    MemoryEvent {
        /// A search for matching experiences ended. The message that follows contains them.
        Injected = "experiences_injected" {
            /// Matching experiences, best first. Empty if none match.
            ids: Vec<ExperienceId>,
            /// Tags of the task, as a model assigned them.
            #[serde(default, skip_serializing_if = "Tags::is_empty")]
            tags: Tags,
            /// Number of calls of that model.
            #[serde(default, skip_serializing_if = "is_zero")]
            model_calls: u64,
            /// Usage of these calls, if known.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// Cost of these calls. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
            /// Why the search failed. The run continues without experiences.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<Box<ErrorInfo>>,
        },
        /// A reflection added an experience.
        Added = "experience_added" {
            /// The new experience.
            id: ExperienceId,
            /// Category of the experience.
            category: String,
        },
        /// A reflection on messages that a summary is about to replace started.
        ReflectionStarted = "reflection_started" {
            /// First and last message.
            covered: (u64, u64),
            /// Estimated number of tokens of the request.
            estimated_tokens: u64,
        },
        /// It ended. Events before this one have what was learned.
        ReflectionEnded = "reflection_ended" {
            /// First and last message.
            covered: (u64, u64),
            /// Usage of the model call, if known.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// Cost of this call. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
            /// Why it failed. The run continues with the summary.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<Box<ErrorInfo>>,
        },
        /// A reflection rated experiences.
        Rated = "experiences_rated" {
            /// Experiences that helped, including experiences that were learned again.
            helpful: Vec<ExperienceId>,
            /// Experiences that did harm.
            harmful: Vec<ExperienceId>,
        },
    }
}
