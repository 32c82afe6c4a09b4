//! Strings, each kept once, known by a number.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::ImageError;

/// The number of a string in a [`Strings`].
pub type StrId = u32;

/// All strings of a partition in one buffer. The empty string is number 0.
#[derive(Debug, Clone)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
    index: HashTable<StrId>,
    hasher: DefaultHashBuilder,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Strings {
            text: String::new(),
            ends: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        strings.intern("").expect("an empty table has room");
        strings
    }
}

impl Strings {
    /// The buffer and the end of each string in it: what a file keeps.
    pub fn parts(&self) -> (&str, &[u32]) {
        (&self.text, &self.ends)
    }

    /// Rebuilds the table from [`Strings::parts`]. Fails when the ends do not describe the text, or
    /// a string is there twice.
    pub fn from_parts(text: String, ends: Vec<u32>) -> Result<Self, ImageError> {
        let mut start = 0;
        for &end in &ends {
            if end < start || !text.is_char_boundary(end as usize) {
                return Err(ImageError("the string table is inconsistent".into()));
            }
            start = end;
        }
        if start as usize != text.len() || ends.first() != Some(&0) {
            return Err(ImageError("the string table is inconsistent".into()));
        }
        let hasher = DefaultHashBuilder::default();
        let mut strings = Strings { text, ends, index: HashTable::new(), hasher };
        let mut index = HashTable::with_capacity(strings.len());
        for id in 0..strings.len() as StrId {
            let hash = strings.hasher.hash_one(strings.get(id));
            // Equal strings are compared by their numbers.
            if index.find(hash, |&other| strings.get(other) == strings.get(id)).is_some() {
                return Err(ImageError("the string table is inconsistent".into()));
            }
            index.insert_unique(hash, id, |&other| strings.hasher.hash_one(strings.get(other)));
        }
        strings.index = index;
        Ok(strings)
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is nothing; never, since the empty string is always there.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in memory.
    pub fn nbytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * 4 + self.index.capacity() * 5
    }

    /// The string of a number.
    #[inline]
    pub fn get(&self, id: StrId) -> &str {
        slice(&self.text, &self.ends, id)
    }

    /// The number of a string, if it is known.
    pub fn find(&self, text: &str) -> Option<StrId> {
        let hash = self.hasher.hash_one(text);
        self.index.find(hash, |&id| self.get(id) == text).copied()
    }

    /// The number of a string, which is added when it is new.
    pub fn intern(&mut self, text: &str) -> Result<StrId, ImageError> {
        let hash = self.hasher.hash_one(text);
        let Strings { text: buffer, ends, index, hasher } = self;
        if let Some(&id) = index.find(hash, |&id| slice(buffer, ends, id) == text) {
            return Ok(id);
        }
        // Ends are 32 bits wide: half the memory, and 4 GB of distinct text is not hardware.
        if buffer.len() + text.len() > u32::MAX as usize {
            return Err(ImageError("the partition holds too much text".into()));
        }
        let id = ends.len() as StrId;
        buffer.push_str(text);
        ends.push(buffer.len() as u32);
        index.insert_unique(hash, id, |&other| hasher.hash_one(slice(buffer, ends, other)));
        Ok(id)
    }
}

#[inline]
fn slice<'a>(text: &'a str, ends: &[u32], id: StrId) -> &'a str {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] as usize };
    &text[start..ends[id] as usize]
}
