//! Encoding of frames between daemon and keeper, and of launch data that the daemon stores.
//!
//! One table of the fields of a struct ([`wire_struct!`](crate::wire_struct)) or of the variants of an enum
//! ([`wire_enum!`](crate::wire_enum)) says both how it is written and how it is read. Numbers are little endian, a text
//! or list follows its length in four bytes, and an optional value a byte that is 0 if there is none.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use abide_core::{Containment, End, Exit, SandboxGap, Sandboxed, SandboxedBy};

/// Error for bytes that are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a frame between daemon and keeper is malformed")
    }
}

impl std::error::Error for Malformed {}

/// Value with an encoding.
pub trait Wire: Sized {
    /// Appends the value.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes the value from the front of a slice.
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;

    /// Appends the values of a list.
    fn put_all(list: &[Self], to: &mut Vec<u8>) {
        list.iter().for_each(|value| value.put(to));
    }

    /// Takes this number of values, each of which has at least one byte.
    fn take_all(count: usize, from: &mut &[u8]) -> Result<Vec<Self>, Malformed> {
        (0..count).map(|_| Self::take(from)).collect()
    }
}

/// Enum whose variants have a code: its first byte. A code never changes its meaning.
pub trait WireEnum: Wire {
    /// Codes of all variants.
    const CODES: &'static [u8];
}

/// Encodes a struct as its fields, in this order.
#[macro_export]
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $name {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }

            fn take(from: &mut &[u8]) -> Result<Self, $crate::codec::Malformed> {
                Ok($name { $($field: $crate::codec::Wire::take(from)?),* })
            }
        }
    };
}

/// Encodes an enum as the code of its variant and the fields of that.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident {
        $($code:literal => $variant:ident $(($inner:ident))? $({ $($field:ident),* })?),* $(,)?
    }) => {
        impl $crate::codec::Wire for $name {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $($name::$variant $(($inner))? $({ $($field),* })? => {
                        to.push($code);
                        $($inner.put(to);)?
                        $($($field.put(to);)*)?
                    })*
                }
            }

            fn take(from: &mut &[u8]) -> Result<Self, $crate::codec::Malformed> {
                Ok(match <u8 as $crate::codec::Wire>::take(from)? {
                    $($code => {
                        $(let $inner = $crate::codec::Wire::take(from)?;)?
                        $($(let $field = $crate::codec::Wire::take(from)?;)*)?
                        $name::$variant $(($inner))? $({ $($field),* })?
                    })*
                    _ => return Err($crate::codec::Malformed),
                })
            }
        }

        impl $crate::codec::WireEnum for $name {
            const CODES: &'static [u8] = &[$($code),*];
        }
    };
}

fn bytes<'a>(count: usize, from: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (head, rest) = from.split_at_checked(count).ok_or(Malformed)?;
    *from = rest;
    Ok(head)
}

impl Wire for u8 {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(bytes(1, from)?[0])
    }

    fn put_all(list: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(list);
    }

    fn take_all(count: usize, from: &mut &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(bytes(count, from)?.to_vec())
    }
}

macro_rules! wire_numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                let (number, rest) = from.split_first_chunk().ok_or(Malformed)?;
                *from = rest;
                Ok(<$number>::from_le_bytes(*number))
            }
        }
    )*};
}

wire_numbers!(u16, u32, i32, u64);

impl Wire for bool {
    fn put(&self, to: &mut Vec<u8>) {
        u8::from(*self).put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(u8::take(from)? != 0)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        T::put_all(self, to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let count = u32::take(from)? as usize;
        // Nothing is allocated for a count that is not true.
        if count > from.len() {
            return Err(Malformed);
        }
        T::take_all(count, from)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Ok(None),
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, to: &mut Vec<u8>) {
        T::put(self, to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        T::take(from).map(Box::new)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl Wire for String {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        to.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        String::from_utf8(Vec::take(from)?).map_err(|_| Malformed)
    }
}

impl Wire for OsString {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        to.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Vec::take(from).map(OsString::from_vec)
    }
}

impl Wire for PathBuf {
    fn put(&self, to: &mut Vec<u8>) {
        (self.as_os_str().len() as u32).put(to);
        to.extend_from_slice(self.as_os_str().as_bytes());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        OsString::take(from).map(PathBuf::from)
    }
}

wire_enum!(Exit {
    1 => Code(code),
    2 => Signal(signal),
});

wire_enum!(End {
    0 => Exited,
    1 => Signaled,
    2 => Deadline,
    3 => IdleDeclined,
    4 => User,
    5 => Agent,
    6 => Inactivity,
    7 => OutOfMemory,
    8 => Lost,
    9 => Sandbox,
});

wire_enum!(Containment {
    0 => Cgroup,
    1 => PidNamespace,
    2 => Subreaper,
});

wire_struct!(Sandboxed { by, gaps });

impl Wire for SandboxedBy {
    fn put(&self, to: &mut Vec<u8>) {
        self.code().put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        SandboxedBy::from_code(u8::take(from)?).ok_or(Malformed)
    }
}

impl Wire for SandboxGap {
    fn put(&self, to: &mut Vec<u8>) {
        self.code().put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        SandboxGap::from_code(u8::take(from)?).ok_or(Malformed)
    }
}
