//! Markup to events.

use std::borrow::Cow;

use super::chars::{find_forbidden, is_space, ncname_length};
use super::namespaces::Scope;
use super::sink::Sink;
use super::text;
use crate::error::DocumentRefused;

/// The depth at which libxml2 gives up without `huge_tree`.
pub const MAX_DEPTH: usize = 256;
/// libxml2's `XML_MAX_TEXT_LENGTH` and `XML_MAX_NAME_LENGTH`.
pub(super) const MAX_TEXT: usize = 10_000_000;
const MAX_NAME: usize = 50_000;
/// An element is recalled only where it cannot reach the bound of depth: it has fewer levels.
pub(super) const LOW: usize = 16;

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

pub(super) struct Raw<'a> {
    pub(super) prefix: &'a str,
    pub(super) local: &'a str,
    pub(super) value: Cow<'a, str>,
    pub(super) at: usize,
}

pub(super) struct Open<'a> {
    pub(super) name: &'a str,
    pub(super) scope: usize,
    /// Where its start tag begins.
    pub(super) start: usize,
    /// Levels of elements inside it.
    pub(super) height: usize,
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) scope: Scope<'a>,
    pub(super) attributes: Vec<Raw<'a>>,
    pub(super) open: Vec<Open<'a>>,
    /// The text collected since the last markup that was not CDATA.
    pub(super) pending: Option<Cow<'a, str>>,
}

pub(super) type Parsed<T> = Result<T, DocumentRefused>;

impl<'a> Parser<'a> {
    pub(super) fn refused(&self, at: usize, reason: impl Into<String>) -> DocumentRefused {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        DocumentRefused {
            reason: reason.into(),
            line: 1 + before.bytes().filter(|&byte| byte == b'\n').count(),
            column: 1 + before[line_start..].chars().count(),
        }
    }

    pub(super) fn fail<T>(&self, reason: impl Into<String>) -> Parsed<T> {
        Err(self.refused(self.at, reason))
    }

    #[inline]
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    pub(super) fn eat(&mut self, token: &str) -> bool {
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
    pub(super) fn skip_space(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        self.at > start
    }

    /// Everything up to `token`, which is skipped.
    pub(super) fn until(&mut self, token: &str, reason: &'static str) -> Parsed<&'a str> {
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
    pub(super) fn ncname(&mut self, reason: &'static str) -> Parsed<&'a str> {
        let rest = self.rest();
        let length = ncname_length(rest);
        if length == 0 || length > MAX_NAME {
            return self.fail(reason);
        }
        self.at += length;
        Ok(&rest[..length])
    }

    #[inline]
    pub(super) fn qname(&mut self) -> Parsed<(&'a str, &'a str)> {
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
            self.doctype()?;
            self.misc(sink)?;
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
                let recallable =
                    S::RECALLS && self.scope.is_empty() && self.open.len() + LOW < MAX_DEPTH;
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
}
