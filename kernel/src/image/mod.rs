//! A partition: documents by slot, over a [`Store`] of distinct subtrees.
//!
//! Two equal subtrees, in one machine or in two, are one row. A row never changes; replacing a
//! document adds rows for what is new in it, and [`PartitionImage::put`] copies the living rows
//! to a new store once the dead ones may outnumber them.

mod builder;
mod census;
mod compose;
mod file;
mod lazy;
mod outline;
mod recall;
mod skeleton;
mod store;

pub use outline::{Class, Classes, Outline};
pub use skeleton::Skeleton;
pub use store::{Child, DOCUMENT, Element, ElementId, Name, NameId, PairId, Store};

use crate::error::{ImageError, PutError};
use lazy::Lazy;
use recall::Recall;

/// Slots in one partition at most: a bound on what a wrong slot number can allocate.
pub const MAX_SLOTS: u32 = 1 << 20;
/// A slot without a document.
const EMPTY: ElementId = ElementId::MAX;
/// The least documents of which it is worth knowing what they have in common.
const MIN_DOCUMENTS: usize = 64;
/// Below this many documents put since the last one, compaction is not worth its time.
const COMPACT_AFTER: usize = 256;

/// The documents of one partition.
#[derive(Debug, Clone, Default)]
pub struct PartitionImage {
    store: Store,
    recall: Recall,
    roots: Vec<ElementId>,
    documents: usize,
    /// Documents replaced or removed since the store was new.
    retired: usize,
    /// Both are forgotten by every change.
    skeleton: Lazy<Skeleton>,
    outline: Lazy<Outline>,
}

impl PartitionImage {
    /// An image without documents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Composes the probes of a node into its document and puts it into the slot. On an error the
    /// slot keeps what it had.
    ///
    /// The `lshw` probe gives the root; the others become its last children, in the order given.
    pub fn put(&mut self, slot: u32, probes: &[(&str, &[u8])]) -> Result<(), PutError> {
        if slot >= MAX_SLOTS {
            return Err(
                ImageError(format!("slot {slot} is beyond the last, {}", MAX_SLOTS - 1)).into()
            );
        }
        let document = compose::compose(&mut self.store, &mut self.recall, probes)?;
        let index = slot as usize;
        if self.roots.len() <= index {
            self.roots.resize(index + 1, EMPTY);
        }
        match std::mem::replace(&mut self.roots[index], document) {
            EMPTY => self.documents += 1,
            _ => self.retired += 1,
        }
        self.forget();
        self.compact_when_due()?;
        Ok(())
    }

    /// Empties a slot; false when it was empty.
    pub fn remove(&mut self, slot: u32) -> bool {
        match self.roots.get_mut(slot as usize) {
            Some(root) if *root != EMPTY => {
                *root = EMPTY;
                self.documents -= 1;
                self.retired += 1;
                self.forget();
                true
            }
            _ => false,
        }
    }

    /// The occupied slots in ascending order, with the document of each.
    pub fn slots(&self) -> impl Iterator<Item = (u32, ElementId)> + '_ {
        let occupied = self.roots.iter().enumerate().filter(|&(_, &root)| root != EMPTY);
        occupied.map(|(slot, &root)| (slot as u32, root))
    }

    /// How many slots are occupied.
    pub fn len(&self) -> usize {
        self.documents
    }

    /// Whether no slot is occupied.
    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }

    /// One more than the highest slot ever used.
    pub fn slot_count(&self) -> usize {
        self.roots.len()
    }

    /// The rows.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What the documents have in common, where that is worth knowing and was asked for before.
    pub fn skeleton(&self) -> Option<&Skeleton> {
        self.skeleton.get(|| {
            let mut documents: Vec<_> = self.slots().map(|(_, document)| document).collect();
            documents.sort_unstable();
            Skeleton::of(&self.store, &documents)
        })
    }

    /// Which nodes stand where in the documents, where that is worth knowing and was asked for before.
    pub fn outline(&self) -> Option<&Outline> {
        self.outline.get(|| {
            let store = self.skeleton().map_or(&self.store, Skeleton::innermost);
            (self.documents >= MIN_DOCUMENTS).then(|| Outline::of(store))?
        })
    }

    /// Bytes in memory, indexes included.
    pub fn nbytes(&self) -> usize {
        self.store.nbytes()
            + self.recall.nbytes()
            + self.roots.capacity() * 4
            + self.skeleton.made().map_or(0, Skeleton::nbytes)
            + self.outline.made().map_or(0, Outline::nbytes)
    }

    fn forget(&mut self) {
        self.skeleton = Lazy::default();
        self.outline = Lazy::default();
    }

    fn compact_when_due(&mut self) -> Result<(), ImageError> {
        if self.retired < COMPACT_AFTER || self.retired < self.documents {
            return Ok(());
        }
        let mut store = Store::default();
        let mut moved = vec![EMPTY; self.store.elements().len()];
        for root in self.roots.iter_mut().filter(|root| **root != EMPTY) {
            *root = store.copy_from(&self.store, *root, &mut moved)?;
        }
        self.store = store;
        self.recall.clear();
        self.retired = 0;
        Ok(())
    }
}
