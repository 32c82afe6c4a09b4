//! Tags and attributes.

use std::borrow::Cow;
use std::collections::HashSet;

use super::chars::is_ncname;
use super::namespaces::XML_URI;
use super::parser::{LOW, MAX_DEPTH, MAX_TEXT, Open, Parsed, Parser, Raw};
use super::sink::{Attribute, QName, Sink};
use super::text;

/// Up to so many attributes are compared with each other; more are hashed.
const FEW_ATTRIBUTES: usize = 12;
/// How far the end of an element is looked for.
const WINDOW: usize = 4096;
/// Elements with longer names are not recalled.
const LONG_NAME: usize = 60;

impl<'a> Parser<'a> {
    pub(super) fn end_tag<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.at += 2;
        let Some(open) = self.open.pop() else {
            return Err(self.refused(self.at, "Opening and ending tag mismatch").into());
        };
        if !self.eat(open.name) {
            let reason = format!("Opening and ending tag mismatch: {}", open.name);
            return Err(self.refused(self.at, reason).into());
        }
        self.skip_space();
        if !self.eat(">") {
            return Err(self.refused(self.at, "Opening and ending tag mismatch").into());
        }
        self.scope.leave(open.scope);
        sink.end()?;
        self.ended(open.start, open.height, sink);
        Ok(())
    }

    /// Offers an element that has ended for recall.
    fn ended<S: Sink>(&mut self, start: usize, height: usize, sink: &mut S) {
        if height < LOW && !self.open.is_empty() && self.scope.is_empty() {
            sink.remember(&self.text[start..self.at], height + 1);
        }
        self.grow(height + 1);
    }

    /// Notes how many levels of elements a child has brought.
    pub(super) fn grow(&mut self, levels: usize) {
        if let Some(parent) = self.open.last_mut() {
            parent.height = parent.height.max(levels);
        }
    }

    /// A guess at the whole element that begins here: up to the first end tag of its name.
    pub(super) fn whole_element(&self) -> Option<&'a str> {
        let rest = self.rest();
        let bytes = &rest.as_bytes()[..rest.len().min(WINDOW)];
        let name = bytes[1..].iter().position(|byte| b" >/\n".contains(byte))?;
        let tag = 1 + name + memchr::memchr(b'>', &bytes[1 + name..])?;
        if bytes[tag - 1] == b'/' {
            return rest.get(..=tag);
        }
        let mut end_tag = [0; 4 + LONG_NAME];
        let end_tag = end_tag.get_mut(..name + 3)?;
        end_tag[..2].copy_from_slice(b"</");
        end_tag[2..2 + name].copy_from_slice(&bytes[1..=name]);
        end_tag[2 + name] = b'>';
        // A leaf's end tag is the next one; for others a search by many bytes at a time is faster.
        let next = tag + memchr::memchr(b'<', &bytes[tag..])?;
        let from = match bytes[next..].starts_with(end_tag) {
            true => next,
            false => next + memchr::memmem::find(&bytes[next..], end_tag)?,
        };
        rest.get(..from + end_tag.len())
    }

    pub(super) fn start_tag<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.open.len() == MAX_DEPTH {
            return Err(self.refused(self.at, "Excessive depth in document").into());
        }
        self.at += 1;
        let start = self.at;
        let (prefix, local) = self.qname()?;
        let name = &self.text[start..self.at];
        let scope = self.scope.enter();
        self.attributes.clear();
        let empty = self.attribute_list()?;
        let Some(uri) = self.scope.lookup(prefix) else {
            let reason = format!("Namespace prefix {prefix} on {local} is not defined");
            return Err(self.refused(start, reason).into());
        };
        sink.start(QName { uri, prefix, local })?;
        let mut seen = HashSet::new();
        for (position, raw) in self.attributes.iter().enumerate() {
            let Some(uri) =
                (if raw.prefix.is_empty() { Some("") } else { self.scope.lookup(raw.prefix) })
            else {
                let reason =
                    format!("Namespace prefix {} for {} is not defined", raw.prefix, raw.local);
                return Err(self.refused(raw.at, reason).into());
            };
            let same = |other: &Raw<'_>| {
                other.local == raw.local
                    && (other.prefix == raw.prefix
                        || !raw.prefix.is_empty()
                            && !other.prefix.is_empty()
                            && self.scope.lookup(other.prefix) == Some(uri))
            };
            let redefined = if self.attributes.len() <= FEW_ATTRIBUTES {
                self.attributes[..position].iter().any(same)
            } else {
                !seen.insert((uri, raw.local))
            };
            if redefined {
                return Err(self
                    .refused(raw.at, format!("Attribute {} redefined", raw.local))
                    .into());
            }
            if uri == XML_URI && raw.local == "id" && !is_ncname(&raw.value) {
                return Err(self
                    .refused(raw.at, "xml:id : attribute value is not an NCName")
                    .into());
            }
            let name = QName { uri, prefix: raw.prefix, local: raw.local };
            sink.attribute(Attribute { name, value: &raw.value })?;
        }
        if empty {
            self.scope.leave(scope);
            sink.end()?;
            self.ended(start - 1, 0, sink);
            return Ok(());
        }
        self.open.push(Open { name, scope, start: start - 1, height: 0 });
        Ok(())
    }

    /// The rest of a start tag; true when it is an empty-element tag.
    fn attribute_list(&mut self) -> Parsed<bool> {
        let mark = self.scope.enter();
        loop {
            let spaced = self.skip_space();
            match self.peek() {
                Some(b'>') => {
                    self.at += 1;
                    return Ok(false);
                }
                Some(b'/') => {
                    self.at += 1;
                    return if self.eat(">") { Ok(true) } else { self.fail("'>' expected") };
                }
                _ if !spaced => return self.fail("attributes construct error"),
                _ => {}
            }
            let at = self.at;
            let (prefix, local) = self.qname()?;
            let value = self.attribute_value()?;
            let declares = match (prefix, local) {
                ("", "xmlns") => Some(""),
                ("xmlns", prefix) => Some(prefix),
                _ => None,
            };
            let Some(declares) = declares else {
                self.attributes.push(Raw { prefix, local, value, at });
                continue;
            };
            let declared = self.scope.declare(declares, value, mark);
            declared.map_err(|reason| self.refused(at, reason))?;
        }
    }

    fn attribute_value(&mut self) -> Parsed<Cow<'a, str>> {
        self.skip_space();
        if !self.eat("=") {
            return self.fail("Specification mandates value for attribute");
        }
        self.skip_space();
        let quote = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => quote,
            _ => return self.fail("AttValue: \" or ' expected"),
        };
        self.at += 1;
        let rest = self.rest();
        let Some(length) = memchr::memchr2(quote, b'<', rest.as_bytes()) else {
            return self.fail("AttValue: ' expected");
        };
        if rest.as_bytes()[length] == b'<' {
            return Err(
                self.refused(self.at + length, "Unescaped '<' not allowed in attributes values")
            );
        }
        if length > MAX_TEXT {
            return self.fail("AttValue length too long");
        }
        let value = text::attribute(&rest[..length])
            .map_err(|(at, reason)| self.refused(self.at + at, reason))?;
        self.at += length + 1;
        Ok(value)
    }
}
