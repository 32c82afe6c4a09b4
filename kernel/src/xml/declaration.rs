//! The XML declaration.

use super::parser::{Parsed, Parser};

impl Parser<'_> {
    /// What follows `<?xml`. The encoding has been looked at before; here only its syntax counts.
    pub(super) fn declaration(&mut self) -> Parsed<()> {
        let mut stage = 0;
        loop {
            let spaced = self.skip_space();
            if self.eat("?>") {
                return if stage == 0 {
                    self.fail("Malformed declaration expecting version")
                } else {
                    Ok(())
                };
            }
            if !spaced {
                return self.fail("Blank needed here");
            }
            let (name, next) = match (stage, self.ncname("parsing XML declaration: '?>' expected")?)
            {
                (0, "version") => ("version", 1),
                (1, "encoding") => ("encoding", 2),
                (1 | 2, "standalone") => ("standalone", 3),
                _ => return self.fail("parsing XML declaration: '?>' expected"),
            };
            stage = next;
            self.skip_space();
            if !self.eat("=") {
                return self.fail("expected '='");
            }
            self.skip_space();
            let quote = match self.peek() {
                Some(b'"') => "\"",
                Some(b'\'') => "'",
                _ => return self.fail("String not started expecting ' or \""),
            };
            self.at += 1;
            let value = self.until(quote, "String not closed expecting \" or '")?;
            let good = match name {
                "version" => value.strip_prefix("1.").is_some_and(|minor| {
                    !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit())
                }),
                "encoding" => {
                    let mut bytes = value.bytes();
                    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
                        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
                }
                _ => value == "yes" || value == "no",
            };
            if !good {
                return self.fail(format!("the {name} is not acceptable"));
            }
        }
    }
}
