//! A small strict XML parser: namespaces, no DTD, exactly as well-formed as libxml2 wants it.
//!
//! Texts and CDATA sections that touch are one text, as with lxml's default parser.

pub mod chars;
mod decode;
mod namespaces;
mod parser;
mod text;

pub use decode::decode;
pub use parser::{Attribute, MAX_DEPTH, QName, Sink, parse};
