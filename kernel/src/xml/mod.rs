//! A small strict XML parser: namespaces, no DTD, exactly as well-formed as libxml2 wants it. A
//! DOCTYPE that only names a file is passed over.
//!
//! Texts and CDATA sections that touch are one text, as with lxml's default parser.

pub mod chars;
mod declaration;
mod decode;
mod doctype;
mod namespaces;
mod parser;
mod plain;
mod sink;
mod tags;
mod text;

pub use decode::decode;
pub use parser::{MAX_DEPTH, parse};
pub use plain::is_plain;
pub use sink::{Attribute, QName, Sink};
