//! Images in files.
//!
//! ```text
//! "TAGMILLP"  8 bytes
//! version     u32 little-endian: SCHEMA
//! digest      32 bytes, BLAKE3 of everything that follows
//! sections    each: u64 length in bytes, then the bytes
//! ```
//!
//! Sections: strings (text), string ends, names, pairs, elements, edges, roots: little-endian u32.
//! Indexes are not stored; building them costs less than reading them would. The file is mapped to
//! be checked and copied, so that a file truncated later cannot hurt.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::store::{Child, DOCUMENT, Element, Name, Store};
use super::{EMPTY, MAX_SLOTS, PartitionImage};
use crate::error::ImageError;
use crate::intern::Strings;
use crate::xml::MAX_DEPTH;

const MAGIC: &[u8; 8] = b"TAGMILLP";
/// Raised by every change to what a file means. Files of another schema are refused.
const SCHEMA: u32 = 1;
const HEADER: usize = 8 + 4 + 32;
/// Levels of rows at most: a probe as deep as the parser takes it, the root that it is put into, and
/// the document. Whatever goes down the rows recurses, and trusts in this.
const MAX_HEIGHT: u16 = MAX_DEPTH as u16 + 2;

impl PartitionImage {
    /// What [`PartitionImage::save`] writes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let store = &self.store;
        let mut body = vec![0; HEADER];
        let (text, ends) = store.strings.parts();
        section(&mut body, text.as_bytes());
        words(&mut body, ends.iter().copied());
        words(&mut body, store.names.iter().flat_map(|name| [name.uri, name.prefix, name.local]));
        words(&mut body, store.pairs.iter().flat_map(|&(name, value)| [name, value]));
        words(
            &mut body,
            store.elements.iter().flat_map(|row| [row.name, row.start, row.attributes]),
        );
        words(&mut body, store.edges.iter().copied());
        words(&mut body, self.roots.iter().copied());
        let digest = blake3::hash(&body[HEADER..]);
        body[..8].copy_from_slice(MAGIC);
        body[8..12].copy_from_slice(&SCHEMA.to_le_bytes());
        body[12..HEADER].copy_from_slice(digest.as_bytes());
        body
    }

    /// Writes the image to a file, completely or not at all.
    pub fn save(&self, path: &Path) -> Result<(), ImageError> {
        let bytes = self.to_bytes();
        let partial = path.with_extension("partial");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&partial)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&partial, path)
        };
        write().map_err(|error| ImageError(format!("cannot write {}: {error}", path.display())))
    }

    /// Reads an image from a file. A damaged or foreign file is an error.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = |error| ImageError(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() < HEADER as u64 {
            return Err(ImageError(format!("{} is not a partition image", path.display())));
        }
        // SAFETY: the bytes are only read, and copied before they are trusted. A writer that changes
        // the file meanwhile is outside of what `save`, which renames, ever does.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
        Self::from_bytes(&map).map_err(|error| ImageError(format!("{}: {error}", path.display())))
    }

    /// Reads an image from what [`PartitionImage::to_bytes`] gave. Anything else is an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        let (header, body) = bytes.split_at_checked(HEADER).ok_or_else(truncated)?;
        if !header.starts_with(MAGIC) {
            return Err(ImageError("not a partition image".into()));
        }
        if header[8..12] != SCHEMA.to_le_bytes() {
            return Err(ImageError("an image of another schema version".into()));
        }
        if header[12..] != *blake3::hash(body).as_bytes() {
            return Err(ImageError("the digest does not match: the file is damaged".into()));
        }
        let mut reader = Reader(body);
        let text = String::from_utf8(reader.section()?.to_vec())
            .map_err(|_| ImageError("the string table is not UTF-8".into()))?;
        let mut store = Store::empty(Strings::from_parts(text, reader.words()?)?);
        let names = as_chunks::<3>(reader.words()?)?;
        let pairs = as_chunks::<2>(reader.words()?)?;
        let elements = as_chunks::<3>(reader.words()?)?;
        let edges = reader.words()?;
        let roots = reader.words()?;
        store.reserve(names.len(), pairs.len(), elements.len());
        for [uri, prefix, local] in names {
            let name = Name { uri, prefix, local };
            if store.find_name(name).is_some() {
                return Err(inconsistent());
            }
            store.add_name(name);
        }
        for [name, value] in pairs {
            let known =
                (name as usize) < store.names.len() && (value as usize) < store.strings.len();
            if !known || store.find_pair(name, value).is_some() {
                return Err(inconsistent());
            }
            store.add_pair((name, value))?;
        }
        store.elements = elements
            .into_iter()
            .map(|[name, start, attributes]| Element { name, start, attributes })
            .collect();
        store.edges = edges;
        check(&store)?;
        store.index_all_elements();
        let documents = check_roots(&store, &roots)?;
        Ok(PartitionImage { store, roots, documents, ..PartitionImage::default() })
    }
}

fn section(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn words(out: &mut Vec<u8>, values: impl Iterator<Item = u32>) {
    let begin = out.len();
    out.extend_from_slice(&[0; 8]);
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
    let length = (out.len() - begin - 8) as u64;
    out[begin..begin + 8].copy_from_slice(&length.to_le_bytes());
}

/// Every number in range, every child an element that comes before its parent, and no more levels
/// than a parsed document has, so that nothing can loop, panic or overflow the stack.
fn check(store: &Store) -> Result<(), ImageError> {
    let strings = store.strings.len() as u32;
    let names_known =
        store.names.iter().all(|name| name.uri.max(name.prefix).max(name.local) < strings);
    if !names_known || store.names.is_empty() {
        return Err(inconsistent());
    }
    let mut start = 0;
    let mut heights: Vec<u16> = Vec::with_capacity(store.elements.len());
    for (id, row) in store.elements.iter().enumerate() {
        let end = store.elements.get(id + 1).map_or(store.edges.len(), |next| next.start as usize);
        let fits = row.start as usize == start
            && start + row.attributes as usize <= end
            && end <= store.edges.len()
            && (row.name as usize) < store.names.len();
        if !fits {
            return Err(inconsistent());
        }
        let (attributes, children) = store.edges[start..end].split_at(row.attributes as usize);
        let mut below = 0;
        let known = attributes.iter().all(|&pair| (pair as usize) < store.pairs.len())
            && children.iter().all(|&packed| match Child::unpack(packed) {
                // The heights of all that come before are known.
                Child::Element(child) => heights.get(child as usize).is_some_and(|&height| {
                    below = below.max(height);
                    store.elements[child as usize].name != DOCUMENT
                }),
                Child::Text(value) | Child::Comment(value) => value < strings,
                Child::Instruction(pair) => (pair as usize) < store.pairs.len(),
            });
        if !known || below >= MAX_HEIGHT {
            return Err(inconsistent());
        }
        heights.push(below + 1);
        start = end;
    }
    if start == store.edges.len() { Ok(()) } else { Err(inconsistent()) }
}

fn check_roots(store: &Store, roots: &[u32]) -> Result<usize, ImageError> {
    let is_document =
        |root: u32| store.elements.get(root as usize).is_some_and(|row| row.name == DOCUMENT);
    let occupied = roots.iter().filter(|&&root| root != EMPTY);
    if roots.len() > MAX_SLOTS as usize || !occupied.clone().all(|&root| is_document(root)) {
        return Err(inconsistent());
    }
    Ok(occupied.count())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn section(&mut self) -> Result<&'a [u8], ImageError> {
        let (length, rest) = self.0.split_first_chunk::<8>().ok_or_else(truncated)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| truncated())?;
        let (section, rest) = rest.split_at_checked(length).ok_or_else(truncated)?;
        self.0 = rest;
        Ok(section)
    }

    fn words(&mut self) -> Result<Vec<u32>, ImageError> {
        let (words, rest) = self.section()?.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(inconsistent());
        }
        Ok(words.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }
}

fn as_chunks<const N: usize>(words: Vec<u32>) -> Result<Vec<[u32; N]>, ImageError> {
    let (chunks, rest) = words.as_chunks::<N>();
    if rest.is_empty() { Ok(chunks.to_vec()) } else { Err(inconsistent()) }
}

fn truncated() -> ImageError {
    ImageError("the file is truncated".into())
}

fn inconsistent() -> ImageError {
    ImageError("the tables are inconsistent".into())
}
