//! Documents that libxml2 surely accepts.

use super::parser::{MAX_TEXT, parse};
use super::sink::{Attribute, QName, Sink};
use crate::error::DocumentRefused;

/// Longer names are left to libxml2, which has a bound of its own.
const LONG_NAME: usize = 1000;

/// Whether libxml2 surely accepts a document, with elements no deeper than `depth`. `text` is in no
/// encoding any more, and has no XML declaration.
///
/// What is false is not refused: everything with namespaces, prefixes or a DOCTYPE is left to
/// libxml2, too, whose errors and limits there are many.
pub fn is_plain(text: &str, depth: usize) -> bool {
    let holds = |piece: &str| memchr::memmem::find(text.as_bytes(), piece.as_bytes()).is_some();
    // The parser takes a mark and a declaration at the beginning; here they are what followed those.
    let begins = text.starts_with('\u{feff}') || text.starts_with("<?xml");
    if begins || text.len() > MAX_TEXT || holds("<!DOCTYPE") || holds("xmlns") {
        return false;
    }
    parse(text, &mut Plain { left: depth }).is_ok()
}

struct Unsure;

impl From<DocumentRefused> for Unsure {
    fn from(_: DocumentRefused) -> Self {
        Unsure
    }
}

struct Plain {
    /// Levels of elements that may follow.
    left: usize,
}

impl Plain {
    fn named(prefix: &str, local: &str) -> Result<(), Unsure> {
        if prefix.is_empty() && local.len() <= LONG_NAME { Ok(()) } else { Err(Unsure) }
    }
}

impl Sink for Plain {
    type Error = Unsure;
    const RECALLS: bool = false;

    fn start(&mut self, name: QName<'_>) -> Result<(), Unsure> {
        self.left = self.left.checked_sub(1).ok_or(Unsure)?;
        Self::named(name.prefix, name.local)
    }

    fn attribute(&mut self, attribute: Attribute<'_>) -> Result<(), Unsure> {
        Self::named(attribute.name.prefix, attribute.name.local)
    }

    fn end(&mut self) -> Result<(), Unsure> {
        self.left += 1;
        Ok(())
    }

    fn text(&mut self, _: &str) -> Result<(), Unsure> {
        Ok(())
    }

    fn comment(&mut self, _: &str) -> Result<(), Unsure> {
        Ok(())
    }

    fn instruction(&mut self, target: &str, _: &str) -> Result<(), Unsure> {
        Self::named("", target)
    }
}
