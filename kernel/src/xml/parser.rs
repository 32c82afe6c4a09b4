//! Markup to events.

use std::borrow::Cow;
use std::collections::HashSet;

use super::chars::{find_forbidden, is_ncname, is_space, ncname_length};
use super::namespaces::{Scope, XML_URI};
use super::text;
use crate::error::DocumentRefused;

/// The depth at which libxml2 gives up without `huge_tree`.
pub const MAX_DEPTH: usize = 256;
/// libxml2's `XML_MAX_TEXT_LENGTH` and `XML_MAX_NAME_LENGTH`.
const MAX_TEXT: usize = 10_000_000;
const MAX_NAME: usize = 50_000;
/// An element is recalled only where it cannot reach the bound of depth: it has fewer levels.
const LOW: usize = 16;
/// How far the end of an element is looked for.
const WINDOW: usize = 4096;
/// Elements with longer names are not recalled.
const LONG_NAME: usize = 60;
/// Up to so many attributes are compared with each other; more are hashed.
const FEW_ATTRIBUTES: usize = 12;

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

/// Parses a document into events. Line ends are normalised, white space is kept.
pub fn parse<S: Sink>(document: &str, sink: &mut S) -> Result<(), S::Error> {
    let document = document.strip_prefix('\u{feff}').unwrap_or(document);
    let text = normalise_line_ends(document);
    let mut parser = Parser {
        text: &text,
        at: 0,
        scope: Scope::default(),
        attributes: Vec::new(),
        open: Vec::new(),
        pending: None,
    };
    if let Some(at) = find_forbidden(&text) {
        return Err(parser.refused(at, "Invalid Char value").into());
    }
    parser.document(sink)
}

fn normalise_line_ends(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\r', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
}

struct Raw<'a> {
    prefix: &'a str,
    local: &'a str,
    value: Cow<'a, str>,
    at: usize,
}

struct Open<'a> {
    name: &'a str,
    scope: usize,
    /// Where its start tag begins.
    start: usize,
    /// Levels of elements inside it.
    height: usize,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    scope: Scope<'a>,
    attributes: Vec<Raw<'a>>,
    open: Vec<Open<'a>>,
    /// The text collected since the last markup that was not CDATA.
    pending: Option<Cow<'a, str>>,
}

type Parsed<T> = Result<T, DocumentRefused>;

impl<'a> Parser<'a> {
    fn refused(&self, at: usize, reason: impl Into<String>) -> DocumentRefused {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        DocumentRefused {
            reason: reason.into(),
            line: 1 + before.bytes().filter(|&byte| byte == b'\n').count(),
            column: 1 + before[line_start..].chars().count(),
        }
    }

    fn fail<T>(&self, reason: impl Into<String>) -> Parsed<T> {
        Err(self.refused(self.at, reason))
    }

    #[inline]
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    fn eat(&mut self, token: &str) -> bool {
        let rest = &self.text.as_bytes()[self.at..];
        // Bytewise: tokens are short, and most differ in the first byte.
        let found =
            rest.len() >= token.len() && rest.iter().zip(token.as_bytes()).all(|(a, b)| a == b);
        if found {
            self.at += token.len();
        }
        found
    }

    #[inline]
    fn skip_space(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        self.at > start
    }

    /// Everything up to `token`, which is skipped.
    fn until(&mut self, token: &str, reason: &'static str) -> Parsed<&'a str> {
        let rest = self.rest();
        let Some(found) = memchr::memmem::find(rest.as_bytes(), token.as_bytes()) else {
            return self.fail(reason);
        };
        if found > MAX_TEXT {
            return self.fail(format!("{reason}: too long"));
        }
        self.at += found + token.len();
        Ok(&rest[..found])
    }

    #[inline]
    fn ncname(&mut self, reason: &'static str) -> Parsed<&'a str> {
        let rest = self.rest();
        let length = ncname_length(rest);
        if length == 0 || length > MAX_NAME {
            return self.fail(reason);
        }
        self.at += length;
        Ok(&rest[..length])
    }

    #[inline]
    fn qname(&mut self) -> Parsed<(&'a str, &'a str)> {
        let first = self.ncname("invalid name")?;
        if self.peek() != Some(b':') {
            return Ok(("", first));
        }
        self.at += 1;
        let local = self.ncname("Failed to parse QName")?;
        if self.peek() == Some(b':') {
            return self.fail("Failed to parse QName");
        }
        Ok((first, local))
    }

    fn document<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.text.starts_with("<?xml")
            && self.text.as_bytes().get(5).copied().is_some_and(is_space)
        {
            self.at = 5;
            self.declaration()?;
        }
        self.misc(sink)?;
        if self.eat("<!DOCTYPE") {
            return Err(self
                .refused(self.at - 9, "a document type declaration is not accepted")
                .into());
        }
        if self.peek() != Some(b'<') {
            return Err(self.refused(self.at, "Start tag expected, '<' not found").into());
        }
        self.start_tag(sink)?;
        while !self.open.is_empty() {
            self.content(sink)?;
        }
        self.misc(sink)?;
        if self.at < self.text.len() {
            return Err(self.refused(self.at, "Extra content at the end of the document").into());
        }
        Ok(())
    }

    fn declaration(&mut self) -> Parsed<()> {
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

    /// Comments, processing instructions and white space outside of the root.
    fn misc<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        loop {
            self.skip_space();
            if self.eat("<!--") {
                self.comment(sink)?;
            } else if self.eat("<?") {
                self.instruction(sink)?;
            } else {
                return Ok(());
            }
        }
    }

    /// The next piece of content of the innermost open element.
    #[inline]
    fn content<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let bytes = self.text.as_bytes();
        if self.peek() != Some(b'<') {
            return Ok(self.characters()?);
        }
        match bytes.get(self.at + 1) {
            Some(b'/') => {
                self.flush(sink)?;
                self.end_tag(sink)
            }
            Some(b'!') if self.eat("<![CDATA[") => {
                let text = self.until("]]>", "CData section not finished")?;
                Ok(self.push_text(Cow::Borrowed(text))?)
            }
            Some(b'!') if self.eat("<!--") => {
                self.flush(sink)?;
                self.comment(sink)
            }
            Some(b'?') => {
                self.flush(sink)?;
                self.at += 2;
                self.instruction(sink)
            }
            _ => {
                self.flush(sink)?;
                let recallable = self.scope.is_empty() && self.open.len() + LOW < MAX_DEPTH;
                if recallable
                    && let Some(markup) = self.whole_element()
                    && let Some(levels) = sink.recall(markup)
                {
                    self.at += markup.len();
                    self.grow(levels);
                    return Ok(());
                }
                self.start_tag(sink)
            }
        }
    }

    fn characters(&mut self) -> Parsed<()> {
        let rest = self.rest();
        let Some(length) = memchr::memchr(b'<', rest.as_bytes()) else {
            self.at = self.text.len();
            return self.fail("Premature end of data");
        };
        let raw = &rest[..length];
        if raw.as_bytes().contains(&b']')
            && let Some(found) = memchr::memmem::find(raw.as_bytes(), b"]]>")
        {
            return Err(self.refused(self.at + found, "Sequence ']]>' not allowed in content"));
        }
        let text = if memchr::memchr(b'&', raw.as_bytes()).is_some() {
            let mut out = String::with_capacity(length);
            text::expand(raw, &mut out)
                .map_err(|(at, reason)| self.refused(self.at + at, reason))?;
            Cow::Owned(out)
        } else {
            Cow::Borrowed(raw)
        };
        self.at += length;
        self.push_text(text)
    }

    fn push_text(&mut self, more: Cow<'a, str>) -> Parsed<()> {
        let joined = match self.pending.take() {
            None => more,
            Some(text) => text + more,
        };
        if joined.len() > MAX_TEXT {
            return self.fail("xmlSAX2Text: huge text node");
        }
        self.pending = Some(joined);
        Ok(())
    }

    #[inline]
    fn flush<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        match self.pending.take() {
            Some(text) => sink.text(&text),
            None => Ok(()),
        }
    }

    fn comment<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let text = self.until("--", "Comment not terminated")?;
        if !self.eat(">") {
            return Err(self.refused(self.at - 2, "Double hyphen within comment").into());
        }
        sink.comment(text)
    }

    fn instruction<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let start = self.at;
        let target = self.ncname("xmlParsePI : no target name")?;
        if self.peek() == Some(b':') {
            return Err(self.refused(start, "colons are forbidden from PI names").into());
        }
        if target.eq_ignore_ascii_case("xml") {
            return Err(self.refused(start, "Invalid PI name").into());
        }
        if self.eat("?>") {
            return sink.instruction(target, "");
        }
        if !self.skip_space() {
            return Err(self.refused(self.at, "ParsePI: PI space expected").into());
        }
        let data = self.until("?>", "ParsePI: PI never end ...")?;
        sink.instruction(target, data)
    }

    fn end_tag<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
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
    fn grow(&mut self, levels: usize) {
        if let Some(parent) = self.open.last_mut() {
            parent.height = parent.height.max(levels);
        }
    }

    /// A guess at the whole element that begins here: up to the first end tag of its name.
    fn whole_element(&self) -> Option<&'a str> {
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

    fn start_tag<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
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
