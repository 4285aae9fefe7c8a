//! Enums whose values have a word each.

/// Defines an enum and its words, which results, records and settings share.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$attribute:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$attribute])* $value,)*
        }

        impl $name {
            /// All values.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// Word of the value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }

            /// Value of a word.
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == word)
            }
        }
    };
}

pub(crate) use words;
