//! Events of memory: what of earlier runs was told, and what was learned (MEM-3, MEM-4).

use crate::{ErrorInfo, ExperienceId, Tags, Usage, Usd, event_macro::events, is_zero};

events! {
    /// What happened to experiences.
    MemoryEvent {
        /// It was looked for what earlier runs have learned; what fits stands in the message that follows.
        Injected = "experiences_injected" {
            /// What is told, the best first; there may be nothing that fits.
            ids: Vec<ExperienceId>,
            /// What the task is about, as a model said.
            #[serde(default, skip_serializing_if = "Tags::is_empty")]
            tags: Tags,
            /// Calls of that model.
            #[serde(default, skip_serializing_if = "is_zero")]
            model_calls: u64,
            /// What they used, as far as it is known.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// What they cost; absent where the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
            /// Why nothing could be found out; the run goes on without.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<ErrorInfo>,
        },
        /// Something was learned.
        Added = "experience_added" {
            /// The experience.
            id: ExperienceId,
            /// What kind of thing it is.
            category: String,
        },
        /// Looking back, experiences were found to have helped, or to have done harm.
        Rated = "experiences_rated" {
            /// Those that helped; one that was learned again among them.
            helpful: Vec<ExperienceId>,
            /// Those that did harm.
            harmful: Vec<ExperienceId>,
        },
    }
}
