//! Markup that was seen before, so that it need not be parsed again.
//!
//! Machines of one model print the same `<capabilities>` to the byte. Parsing is deterministic: where
//! the text of a whole element stands again, outside of any namespace declaration, it means the
//! same row. So a lookup may guess how far an element reaches; a wrong guess finds nothing.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::store::ElementId;

/// Bytes of markup that are remembered. All is forgotten when they are full, which only costs time.
const CAPACITY: usize = 1 << 20;
/// The longest element that is remembered.
pub const LONGEST: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    length: u32,
    element: ElementId,
    levels: usize,
}

/// Remembered elements of one store.
#[derive(Debug, Clone, Default)]
pub struct Recall {
    text: Vec<u8>,
    entries: HashTable<Entry>,
    hasher: DefaultHashBuilder,
}

impl Recall {
    /// The row of an element that is written exactly so, and the levels of elements in it.
    #[inline]
    pub fn find(&self, markup: &str) -> Option<(ElementId, usize)> {
        let hash = self.hasher.hash_one(markup);
        let same = |entry: &Entry| markup_of(&self.text, entry) == markup.as_bytes();
        self.entries.find(hash, same).map(|entry| (entry.element, entry.levels))
    }

    /// Remembers the row of an element.
    pub fn insert(&mut self, markup: &str, element: ElementId, levels: usize) {
        if markup.len() > LONGEST || self.find(markup).is_some() {
            return;
        }
        if self.text.len() + markup.len() > CAPACITY {
            self.clear();
        }
        let Recall { text, entries, hasher } = self;
        let entry =
            Entry { start: text.len() as u32, length: markup.len() as u32, element, levels };
        text.extend_from_slice(markup.as_bytes());
        let hash = |entry: &Entry, text: &[u8]| {
            // As a `str` is hashed: entries are whole elements, so they are UTF-8.
            hasher.hash_one(std::str::from_utf8(markup_of(text, entry)).unwrap_or_default())
        };
        entries.insert_unique(hash(&entry, text), entry, |entry| hash(entry, text));
    }

    /// Forgets everything: the rows have other numbers now.
    pub fn clear(&mut self) {
        self.text.clear();
        self.entries.clear();
    }

    /// Bytes in memory.
    pub fn nbytes(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * 25
    }
}

fn markup_of<'a>(text: &'a [u8], entry: &Entry) -> &'a [u8] {
    &text[entry.start as usize..][..entry.length as usize]
}
