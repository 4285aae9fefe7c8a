//! Random bits for ids and seals.

/// Sixty-four random bits.
pub fn bits() -> u64 {
    u64::from_le_bytes(array())
}

/// An array of random bytes.
pub fn array<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    fill(&mut bytes);
    bytes
}

/// Fills a buffer with random bytes.
pub fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel always has random bytes");
}
