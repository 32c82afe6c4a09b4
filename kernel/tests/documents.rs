//! What the XML parser takes and refuses. The differential suite in Python holds it to libxml2.
#![allow(missing_docs)]

mod common;

use common::{LSHW, holds};
use tagmill_kernel::error::PutError;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::xml::is_plain;

fn refusal(document: &str) -> (usize, usize) {
    match PartitionImage::new().put(0, &[("lshw", document.as_bytes())]) {
        Err(PutError::Document(_, error)) => (error.line, error.column),
        other => panic!("{document}: {other:?}"),
    }
}

#[test]
fn texts_and_cdata_that_touch_are_one_text() {
    assert!(holds("<a>x<![CDATA[<y>]]>&amp;z</a>", "count(/a/text()) = 1 and . = 'x<y>&z'"));
    assert!(holds("<a><![CDATA[]]></a>", "count(/a/text()) = 1"));
}

#[test]
fn line_ends_and_attribute_white_space_are_normalised() {
    assert!(holds("<a b='\t&#9;'>\r\n\r</a>", "string-length(/a) = 2 and @b = ' \t'"));
}

#[test]
fn white_space_between_elements_is_kept() {
    assert!(holds("<a> <b/> </a>", "count(/a/text()) = 2"));
}

#[test]
fn namespaces_follow_their_declarations() {
    let document = "<a xmlns='u'><p:b xmlns:p='v' c='1'/><b xmlns=''/></a>";
    assert!(holds(document, "namespace-uri(/*) = 'u' and namespace-uri(/*/*[1]) = 'v'"));
    assert!(holds(document, "name(/*/*[1]) = 'p:b' and //b and not(//a) and //@c"));
}

#[test]
fn a_refusal_points_at_the_place() {
    assert_eq!(refusal("<a>\n <b></c>\n</a>"), (2, 7));
    assert_eq!(refusal("<é>&x;</é>"), (1, 4));
    assert_eq!(refusal("<!DOCTYPE a []><a/>"), (1, 1));
    assert_eq!(refusal("<!--c-->\n <!DOCTYPE a SYSTEM><a/>"), (2, 2));
}

#[test]
fn depth_is_bounded() {
    let deep = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
    assert!(holds(&deep(256), "//a[not(a)]"));
    refusal(&deep(257));
}

#[test]
fn every_truncation_of_a_real_document_is_refused() {
    let end = LSHW.rfind("</").expect("a document has an end tag");
    for at in (0..end).step_by(7).filter(|&at| LSHW.is_char_boundary(at)) {
        refusal(&LSHW[..at]);
    }
}

#[test]
fn many_attributes_cost_no_square() {
    let attributes: String = (0..100_000).map(|n| format!(" a{n}='{n}'")).collect();
    assert!(holds(&format!("<a{attributes}/>"), "count(@*) = 100000"));
    refusal(&format!("<a{attributes} a5=''/>"));
}

#[test]
fn only_ordinary_documents_are_surely_accepted() {
    assert!(is_plain("\n<?p x?><a b='1'>&amp;<![CDATA[<]]><b/></a><!-- c -->\n", 2));
    assert!(!is_plain("<a><b/></a>", 1), "too deep");
    for unsure in [
        "",
        "<a>",
        "<a/>x",
        "<?xml version='1.0'?><a/>",
        "\u{feff}<a/>",
        "<!DOCTYPE a><a/>",
        "<a xmlns='u'/>",
        "<a xml:id='b'/>",
        "<a>&b;</a>",
        "<a b='1' b='2'/>",
        "<a>\u{1}</a>",
    ] {
        assert!(!is_plain(unsure, 8), "{unsure}");
    }
    let long = "b".repeat(1001);
    for unsure in [format!("<{long}/>"), format!("<a {long}='1'/>"), format!("<?{long}?><a/>")] {
        assert!(!is_plain(&unsure, 8));
    }
}
