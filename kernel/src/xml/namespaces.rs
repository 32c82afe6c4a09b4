//! The prefixes in scope, and which declarations libxml2 accepts.

use std::borrow::Cow;
use std::collections::HashMap;

pub const XML_URI: &str = "http://www.w3.org/XML/1998/namespace";
const XMLNS_URI: &str = "http://www.w3.org/2000/xmlns/";

/// Declarations in scope. The empty prefix is the default namespace.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    /// Innermost last, each with what its prefix was declared as before.
    declared: Vec<(&'a str, Cow<'a, str>, Option<usize>)>,
    /// The innermost declaration of each prefix: a document may declare very many.
    innermost: HashMap<&'a str, usize>,
}

impl<'a> Scope<'a> {
    /// A mark to give to [`Scope::leave`] and [`Scope::declare`].
    pub fn enter(&self) -> usize {
        self.declared.len()
    }

    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    /// Forgets what was declared since the mark.
    pub fn leave(&mut self, mark: usize) {
        while self.declared.len() > mark {
            let (prefix, _, before) = self.declared.pop().expect("there is one to forget");
            match before {
                Some(before) => self.innermost.insert(prefix, before),
                None => self.innermost.remove(prefix),
            };
        }
    }

    /// Declares `prefix` (empty for the default namespace) on the element entered at `mark`, or
    /// says why that is not allowed.
    pub fn declare(
        &mut self,
        prefix: &'a str,
        uri: Cow<'a, str>,
        mark: usize,
    ) -> Result<(), &'static str> {
        match prefix {
            "xml" if uri == XML_URI => return Ok(()),
            "xml" => return Err("xml namespace prefix mapped to wrong URI"),
            "xmlns" => return Err("redefinition of the xmlns prefix is forbidden"),
            _ => {}
        }
        if uri == XML_URI {
            return Err("xml namespace URI mapped to wrong prefix");
        }
        if uri == XMLNS_URI {
            return Err("reuse of the xmlns namespace name is forbidden");
        }
        if uri.is_empty() && !prefix.is_empty() {
            return Err("Empty XML namespace is not allowed");
        }
        if !is_uri(&uri) {
            return Err("the namespace name is not a valid URI");
        }
        let before = self.innermost.insert(prefix, self.declared.len());
        if before.is_some_and(|before| before >= mark) {
            return Err("Attribute xmlns redefined");
        }
        self.declared.push((prefix, uri, before));
        Ok(())
    }

    /// The URI of a prefix; the default namespace is "" where none is declared.
    pub fn lookup(&self, prefix: &str) -> Option<&str> {
        if prefix == "xml" {
            return Some(XML_URI);
        }
        if !self.declared.is_empty()
            && let Some(&found) = self.innermost.get(prefix)
        {
            return Some(&self.declared[found].1);
        }
        prefix.is_empty().then_some("")
    }
}

/// RFC 3986 as far as libxml2's `xmlParseURI` checks it: the characters, `%XX`, brackets only
/// around an address, a port of digits, one fragment.
fn is_uri(uri: &str) -> bool {
    let (rest, fragment) = uri.split_once('#').map_or((uri, ""), |(a, b)| (a, b));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(a, b)| (a, b));
    let first_colon = rest.find(':');
    let first_slash = rest.find('/').unwrap_or(rest.len());
    let hierarchy = match first_colon {
        Some(colon) if colon < first_slash => {
            let scheme = &rest.as_bytes()[..colon];
            let named = scheme.first().is_some_and(u8::is_ascii_alphabetic)
                && scheme.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
            if !named {
                return false;
            }
            &rest[colon + 1..]
        }
        _ => rest,
    };
    let (authority, path) = match hierarchy.strip_prefix("//") {
        Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
        None => ("", hierarchy),
    };
    is_authority(authority)
        && all_legal(path, b"/:@")
        && all_legal(query, b"/:@?")
        && all_legal(fragment, b"/:@?")
}

fn is_authority(authority: &str) -> bool {
    let (user, host_port) = authority.rsplit_once('@').map_or(("", authority), |(a, b)| (a, b));
    let (host, port) = match host_port.strip_prefix('[') {
        Some(address) => match address.split_once(']') {
            Some((address, rest)) => (address, rest.strip_prefix(':').unwrap_or(rest)),
            None => return false,
        },
        None => host_port.split_once(':').map_or((host_port, ""), |(a, b)| (a, b)),
    };
    let bracketed = host_port.starts_with('[');
    all_legal(user, b":")
        && (bracketed || all_legal(host, b""))
        && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn all_legal(part: &str, extra: &[u8]) -> bool {
    let bytes = part.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)),
        byte => {
            byte.is_ascii_alphanumeric()
                || b"-._~!$&'()*+,;=".contains(byte)
                || extra.contains(byte)
        }
    })
}
