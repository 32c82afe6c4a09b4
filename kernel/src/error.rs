//! The errors of the crate, and the Python exceptions that `python.rs` raises for them. The exceptions
//! derive from `KernelError`, which has no counterpart here.
//!
//! ```text
//! here                Python             when
//! ImageError          ImageError         a file is damaged, foreign or of another schema; a partition is full
//! DocumentRefused     DocumentRefused    not well-formed, or declares a DTD (line, column from 1)
//! ExpressionRefused   KernelRefused      a syntax error, or a construct that is left to lxml (column from 1)
//! BudgetExceeded      BudgetExceeded     an evaluation ran past its steps
//! ```

use std::fmt;

/// A file or a partition that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageError(pub String);

/// A probe whose XML is refused. `line` and `column` count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRefused {
    /// What is wrong.
    pub reason: String,
    /// The line of the offending character.
    pub line: usize,
    /// Its column.
    pub column: usize,
}

/// An expression that does not compile here. `column` counts characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionRefused {
    /// What is wrong, or which construct is left to lxml.
    pub reason: String,
    /// Where it begins.
    pub column: usize,
}

/// An evaluation that was stopped because it ran past its budget of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetExceeded;

/// Why a document could not be put into an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutError {
    /// The XML of the named probe is refused.
    Document(String, DocumentRefused),
    /// The partition cannot take more.
    Image(ImageError),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for DocumentRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}, column {}", self.reason, self.line, self.column)
    }
}

impl fmt::Display for ExpressionRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, column {}", self.reason, self.column)
    }
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the evaluation ran past its budget of steps")
    }
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::Document(probe, error) => write!(f, "{probe}: {error}"),
            PutError::Image(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ImageError {}
impl std::error::Error for DocumentRefused {}
impl std::error::Error for ExpressionRefused {}
impl std::error::Error for BudgetExceeded {}
impl std::error::Error for PutError {}

impl From<ImageError> for PutError {
    fn from(error: ImageError) -> Self {
        PutError::Image(error)
    }
}
