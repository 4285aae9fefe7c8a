//! Lists of names in one text.

/// Names of programs, options or variables, with white space between them.
#[derive(Clone, Copy, Debug)]
pub struct Names(pub &'static str);

impl Names {
    /// Returns whether this is one of the names.
    pub fn has(self, name: &str) -> bool {
        self.iter().any(|known| known == name)
    }

    /// All names.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        self.0.split_ascii_whitespace()
    }
}
