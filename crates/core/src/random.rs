//! Pseudo-random numbers (splitmix64): the same seed gives the same sequence, so that a run can be repeated.

/// Sequence of numbers from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RandomSequence(pub u64);

impl RandomSequence {
    /// Next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
