//! Partition images in columns, and XPath 1.0 plans over them.
//!
//! The way of one batch through the crate:
//!
//! 1. [`xml`] parses the probes of a node strictly (no DTD) and reports events.
//! 2. [`image`] interns names, values and whole subtrees as the events come, so that a partition
//!    costs memory for the variety of its hardware and not for the number of its nodes.
//! 3. [`xpath`] compiles an expression to typed operators, or refuses it (then lxml takes it).
//! 4. [`eval`] says what the operators mean. [`plan`] evaluates them a column at a time over all documents, by postings and over
//!    distinct subtrees where the expression allows it.
//! 5. [`interp`] evaluates everything else on one document expanded by [`tree`].
//!
//! libxml2, as lxml drives it, is the reference for what is well-formed and for what an expression
//! means. Where it departs from the recommendations, this crate follows it and says so.

pub mod beginnings;
pub mod budget;
pub mod error;
pub mod eval;
pub mod image;
pub mod intern;
pub mod interp;
pub mod plan;
#[cfg(feature = "python")]
mod python;
pub mod tree;
pub mod vocabulary;
pub mod xml;
pub mod xpath;
