//! Macro that declares the events of one noun.

/// Declares the event enum of one noun: variants with their serialized kinds and fields. After the
/// kind of an event that is not normal operation, its severity follows: `[Warn]` or `[Error]`.
macro_rules! events {
    (
        $(#[$meta:meta])* $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $kind:literal $([$level:ident])? {
                $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)?
            }),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "event", content = "data")]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $kind)] $variant { $($(#[$field_meta])* $field: $type),* }),*
        }

        impl $name {
            /// All kinds of this noun, as clients see them.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// Returns the kind as clients see it.
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $kind),* }
            }

            /// Returns the severity of the event.
            pub(crate) const fn level(&self) -> $crate::Level {
                match self { $(Self::$variant { .. } => events!(@level $($level)?)),* }
            }
        }
    };
    (@level) => { $crate::Level::Info };
    (@level $level:ident) => { $crate::Level::$level };
}
pub(crate) use events;
