//! What the parser reports.

use crate::error::DocumentRefused;

/// A name with its namespace. `uri` is empty for no namespace, `prefix` for no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QName<'a> {
    /// The namespace name.
    pub uri: &'a str,
    /// The part before the colon.
    pub prefix: &'a str,
    /// The part after the colon.
    pub local: &'a str,
}

/// An attribute; namespace declarations are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its name.
    pub name: QName<'a>,
    /// Its value, normalised.
    pub value: &'a str,
}

/// What the parser reports, in document order. An error of the sink ends the parse.
pub trait Sink {
    /// The error of the sink; a refused document becomes one too.
    type Error: From<DocumentRefused>;
    /// Whether it may know elements by how they are written.
    const RECALLS: bool = true;
    /// A start tag with all its attributes.
    fn start(&mut self, name: QName<'_>) -> Result<(), Self::Error>;
    /// An attribute of the element just started.
    fn attribute(&mut self, attribute: Attribute<'_>) -> Result<(), Self::Error>;
    /// The end of the innermost open element.
    fn end(&mut self) -> Result<(), Self::Error>;
    /// If the sink knows an element that is written exactly so, outside of any namespace
    /// declaration: takes it as if it had been reported, and gives the levels of elements in it.
    fn recall(&mut self, _markup: &str) -> Option<usize> {
        None
    }
    /// How the element that has just ended is written, if it may be recalled.
    fn remember(&mut self, _markup: &str, _levels: usize) {}
    /// A whole text: never two in a row.
    fn text(&mut self, text: &str) -> Result<(), Self::Error>;
    /// A comment.
    fn comment(&mut self, text: &str) -> Result<(), Self::Error>;
    /// A processing instruction.
    fn instruction(&mut self, target: &str, data: &str) -> Result<(), Self::Error>;
}
