//! A document type declaration that declares nothing itself.

use super::chars::is_space;
use super::parser::{Parsed, Parser};

impl<'a> Parser<'a> {
    /// What follows `<!DOCTYPE`: a name, and the external subset's, which is never read. An internal
    /// subset is refused, and so there are no entities but the five.
    pub(super) fn doctype(&mut self) -> Parsed<()> {
        let start = self.at - "<!DOCTYPE".len();
        match self.skip_space() && self.doctype_name() && self.external_id() {
            true => Ok(()),
            false => {
                Err(self
                    .refused(start, "a document type declaration that declares is not accepted"))
            }
        }
    }

    fn doctype_name(&mut self) -> bool {
        self.qname().is_ok()
    }

    /// `SYSTEM "file"`, `PUBLIC "name" "file"` or nothing, and the end.
    fn external_id(&mut self) -> bool {
        let spaced = self.skip_space();
        if self.eat(">") {
            return true;
        }
        let public = self.eat("PUBLIC");
        if !spaced || !(public || self.eat("SYSTEM")) {
            return false;
        }
        if public
            && !(self.skip_space() && self.literal().is_some_and(|id| id.bytes().all(is_pubid)))
        {
            return false;
        }
        if !self.skip_space() || self.literal().is_none() {
            return false;
        }
        self.skip_space();
        self.eat(">")
    }

    fn literal(&mut self) -> Option<&'a str> {
        let quote = self.peek().filter(|byte| matches!(byte, b'"' | b'\''))?;
        let rest = &self.rest()[1..];
        let length = memchr::memchr(quote, rest.as_bytes())?;
        self.at += length + 2;
        Some(&rest[..length])
    }
}

/// The production `PubidChar`.
fn is_pubid(byte: u8) -> bool {
    let space = is_space(byte) && byte != b'\t';
    space || byte.is_ascii_alphanumeric() || b"-'()+,./:=?;!*#@$_%".contains(&byte)
}
