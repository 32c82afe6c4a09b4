//! The distinct rows of a list in ascending order, and the place of each among them.

use crate::image::ElementId;

/// Rows of one store, as bits, with the number of those before each word.
pub struct Places {
    bits: Vec<u64>,
    before: Vec<u32>,
    rows: Vec<ElementId>,
}

impl Places {
    /// The places of some rows of a store that has `size` of them.
    pub fn of(rows: impl Iterator<Item = ElementId>, size: usize) -> Self {
        let mut bits = vec![0_u64; size.div_ceil(64)];
        rows.for_each(|id| bits[id as usize / 64] |= 1 << (id % 64));
        let mut before = Vec::with_capacity(bits.len());
        let mut rows = Vec::new();
        for (index, &word) in bits.iter().enumerate() {
            before.push(rows.len() as u32);
            let mut left = word;
            while left != 0 {
                rows.push(index as ElementId * 64 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        Places { bits, before, rows }
    }

    /// The distinct rows, ascending.
    pub fn rows(&self) -> &[ElementId] {
        &self.rows
    }

    /// Whether a row is one of them.
    #[inline]
    pub fn contains(&self, id: ElementId) -> bool {
        self.bits[id as usize / 64] >> (id % 64) & 1 == 1
    }

    /// The place of a row that is one of them.
    #[inline]
    pub fn place(&self, id: ElementId) -> usize {
        let word = id as usize / 64;
        let lower = self.bits[word] & ((1 << (id % 64)) - 1);
        self.before[word] as usize + lower.count_ones() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_once_and_know_their_places() {
        let places = Places::of([130, 3, 63, 64, 3, 130].into_iter(), 131);
        assert_eq!(places.rows(), [3, 63, 64, 130]);
        assert_eq!([3, 63, 64, 130].map(|id| places.place(id)), [0, 1, 2, 3]);
    }
}
