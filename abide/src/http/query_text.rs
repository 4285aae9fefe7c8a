//! Text in the query of a request.

/// Text as the value of a field of a query. Only letters, digits, `-`, `_` and `.` stay as they are.
pub fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_beyond_ascii_and_separators_are_encoded() {
        assert_eq!(encoded("a-b_c.9"), "a-b_c.9");
        assert_eq!(encoded("ü&"), "%C3%BC%26");
    }
}
