//! Encoding of numbers and byte strings: in frames between daemon and keeper, and in launch data that the daemon stores.

use abide_core::{Containment, End, Exit, Gap, Sandboxed, SandboxedBy};

/// Error for bytes that are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a frame between daemon and keeper is malformed")
    }
}

impl std::error::Error for Malformed {}

/// Appends values to a buffer.
pub struct Encoder<'a>(pub &'a mut Vec<u8>);

impl Encoder<'_> {
    /// Appends a byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Appends a truth value as a byte.
    pub fn flag(&mut self, value: bool) -> &mut Self {
        self.u8(value.into())
    }

    /// Appends a number in four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a number in eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a byte string: its length in four bytes, and the bytes.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
        self
    }

    /// Appends a number that may be absent.
    pub fn maybe_u64(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            None => self.u8(0),
            Some(value) => self.u8(1).u64(value),
        }
    }

    /// Appends a text that may be absent.
    pub fn maybe_text(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            None => self.u8(0),
            Some(value) => self.u8(1).bytes(value.as_bytes()),
        }
    }

    /// At most 255 texts.
    pub(super) fn texts(&mut self, values: &[String]) -> &mut Self {
        let count = u8::try_from(values.len()).unwrap_or(u8::MAX);
        self.u8(count);
        for value in &values[..count.into()] {
            self.bytes(value.as_bytes());
        }
        self
    }

    pub(super) fn sandboxed(&mut self, sandboxed: &Sandboxed) -> &mut Self {
        let gaps: Vec<u8> = sandboxed.gaps.iter().map(|gap| gap.code()).collect();
        self.u8(sandboxed.by.code()).bytes(&gaps)
    }

    pub(super) fn exit(&mut self, exit: Option<Exit>) -> &mut Self {
        match exit {
            None => self.u8(0),
            Some(Exit::Code(code)) => self.u8(1).u32(code as u32),
            Some(Exit::Signal(signal)) => self.u8(2).u32(signal as u32),
        }
    }
}

/// Takes values from the front of a slice.
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.raw(N)?.try_into().map_err(|_| Malformed)
    }

    /// Takes a byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.fixed()?))
    }

    /// Takes a truth value.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        Ok(self.u8()? != 0)
    }

    /// Takes a number of four bytes that fits in two.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        u16::try_from(self.u32()?).map_err(|_| Malformed)
    }

    /// Takes a number of four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.fixed()?))
    }

    /// Takes a number of eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.fixed()?))
    }

    /// Takes a byte string.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        self.raw(len)
    }

    /// Takes a byte string that is UTF-8.
    pub fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }

    /// Takes a number that may be absent.
    pub fn maybe_u64(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(match self.u8()? {
            0 => None,
            _ => Some(self.u64()?),
        })
    }

    /// Takes a text that may be absent.
    pub fn maybe_text(&mut self) -> Result<Option<String>, Malformed> {
        match self.u8()? {
            0 => Ok(None),
            _ => self.text().map(Some),
        }
    }

    /// At most 255 texts.
    pub fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        (0..self.u8()?).map(|_| self.text()).collect()
    }

    /// A list: its length, and its elements as `one` reads them.
    pub fn list<T>(
        &mut self,
        one: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        // Every element takes at least four bytes for its length, so a larger count is invalid and nothing is allocated
        // for it.
        if count > self.0.len() / 4 {
            return Err(Malformed);
        }
        (0..count).map(|_| one(self)).collect()
    }

    pub(super) fn sandboxed(&mut self) -> Result<Sandboxed, Malformed> {
        let by = SandboxedBy::from_code(self.u8()?).ok_or(Malformed)?;
        let gaps = self.bytes()?.iter();
        let gaps: Option<Vec<Gap>> = gaps.map(|code| Gap::from_code(*code)).collect();
        let gaps = gaps.ok_or(Malformed)?;
        Ok(Sandboxed { by, gaps })
    }

    pub(super) fn exit(&mut self) -> Result<Option<Exit>, Malformed> {
        Ok(match self.u8()? {
            0 => None,
            1 => Some(Exit::Code(self.u32()? as i32)),
            2 => Some(Exit::Signal(self.u32()? as i32)),
            _ => return Err(Malformed),
        })
    }
}

/// Endings by their number on the wire. A number never changes its meaning.
const ENDS: [End; 10] = [
    End::Exited,
    End::Signaled,
    End::Deadline,
    End::IdleDeclined,
    End::User,
    End::Agent,
    End::Inactivity,
    End::OutOfMemory,
    End::Lost,
    End::Sandbox,
];

/// Number of an [`End`] on the wire.
pub(super) fn end_code(end: End) -> u8 {
    let at = ENDS.iter().position(|known| *known == end);
    at.expect("the list has every ending") as u8
}

pub(super) fn end_from(code: u8) -> Result<End, Malformed> {
    ENDS.get(usize::from(code)).copied().ok_or(Malformed)
}

/// The [`End`] for a word of the public contract.
pub(super) fn end_from_word(word: &str) -> Option<End> {
    ENDS.into_iter().find(|end| end.as_str() == word)
}

/// Containments by their number on the wire.
const CONTAINMENTS: [Containment; 3] = [
    Containment::Cgroup,
    Containment::PidNamespace,
    Containment::Subreaper,
];

pub(super) fn containment_code(contained_by: Containment) -> u8 {
    let at = CONTAINMENTS.iter().position(|known| *known == contained_by);
    at.expect("the list has every containment") as u8
}

pub(super) fn containment_from(code: u8) -> Result<Containment, Malformed> {
    CONTAINMENTS
        .get(usize::from(code))
        .copied()
        .ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_comes_back_from_its_code_and_its_word() {
        for end in ENDS {
            assert_eq!(end_from(end_code(end)), Ok(end));
            assert_eq!(end_from_word(end.as_str()), Some(end));
        }
        assert_eq!(end_from(ENDS.len() as u8), Err(Malformed));
    }
}
