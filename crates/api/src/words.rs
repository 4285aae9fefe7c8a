//! Enums whose values are words in JSON.

/// Defines enums of words. Each value has its word once, for JSON, for schemas and for text. `from` names a type of
/// another crate with the same values, from which the enum is made.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident $values:tt $(from $other:ty)?;)*) => {$(
        words!(@enum $(#[$about])* $name $values);
        $(words!(@from $other, $name $values);)?
    )*};
    (@enum $(#[$about:meta])* $name:ident { $($(#[$attribute:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[schemars(inline)]
        pub enum $name {
            $($(#[$attribute])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$($name::$value),*];

            /// Word of the value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$value => $word,)*
                }
            }

            /// Value of a word.
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }
    };
    (@from $other:ty, $name:ident { $($value:ident = $word:literal,)* }) => {
        impl From<$other> for $name {
            fn from(value: $other) -> Self {
                match value {
                    $(<$other>::$value => $name::$value,)*
                }
            }
        }
    };
}

pub(crate) use words;
