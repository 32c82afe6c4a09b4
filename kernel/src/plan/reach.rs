//! Carrying hits from distinct elements up to the documents that contain them.

use crate::budget::Budget;
use crate::eval::Evaluated;
use crate::image::{ElementId, Store};

/// The elements that contain a hit, or are one.
pub struct Reached {
    bits: Vec<u64>,
    /// All of them, ascending: every element comes after what it contains.
    order: Vec<ElementId>,
}

impl Reached {
    /// Marks hits and everything above them.
    pub fn from(store: &Store, hits: &[ElementId], budget: &Budget) -> Evaluated<Self> {
        budget.spend(store.elements().len() / 64)?;
        let mut bits = vec![0_u64; store.elements().len().div_ceil(64)];
        let mut order = Vec::with_capacity(hits.len() * 4);
        for &hit in hits {
            mark(&mut bits, &mut order, hit);
        }
        let mut next = 0;
        while let Some(&id) = order.get(next) {
            next += 1;
            let mut links = 0;
            for parent in store.parents(id) {
                mark(&mut bits, &mut order, parent);
                links += 1;
            }
            budget.spend(1 + links)?;
        }
        Ok(Reached { bits, order })
    }

    /// Whether an element contains a hit or is one.
    #[inline]
    pub fn contains(&self, id: ElementId) -> bool {
        self.bits[id as usize / 64] >> (id % 64) & 1 == 1
    }

    /// The marked elements, in no order.
    pub fn rows(self) -> Vec<ElementId> {
        self.order
    }

    /// The marked elements, children before parents.
    pub fn ascending(mut self) -> Vec<ElementId> {
        self.order.sort_unstable();
        self.order
    }
}

#[inline]
fn mark(bits: &mut [u64], order: &mut Vec<ElementId>, id: ElementId) {
    let (word, bit) = (&mut bits[id as usize / 64], 1 << (id % 64));
    if *word & bit == 0 {
        *word |= bit;
        order.push(id);
    }
}
