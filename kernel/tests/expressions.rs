//! What compiles, what is refused and where, and how numbers read and print.
#![allow(missing_docs)]

mod common;

use std::collections::HashMap;

use common::holds;
use tagmill_kernel::xpath::{Expression, number};

#[test]
fn numbers_print_as_libxml2_prints_them() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1 + 0.2, "0.3"),
        (1.0 / 3.0, "0.333333333333333"),
        (100_000.0 / 3.0, "33333.3333333333"),
        (2_147_483_648.0, "2.147483648e+09"),
        (12_345_678_901.5, "1.23456789015e+10"),
        (1e21, "1e+21"),
        (0.000_001_23, "1.23e-06"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(number::format(value), text);
    }
}

#[test]
fn numbers_are_read_as_libxml2_reads_them() {
    for (text, value) in [(" 1 ", 1.0), ("-.5", -0.5), ("1.", 1.0), ("1e3", 1000.0), ("1E-1", 0.1)]
    {
        assert_eq!(number::parse(text), value, "{text}");
    }
    for text in ["", "-", ".", "+1", "1 2", "- 1", "0x1", "e1", "NaN", "Infinity"] {
        assert!(number::parse(text).is_nan(), "{text}");
    }
}

#[test]
fn names_that_are_operators_elsewhere_are_names_where_a_step_is_due() {
    assert!(holds("<and><or/></and>", "/and/or and or or and"));
    assert!(holds("<div><mod/></div>", "count(mod) * 2 div 2 mod 2 = 1"));
}

#[test]
fn refusals_name_the_column() {
    for (text, column) in [
        ("//node[", 8),
        ("", 1),
        ("a b", 3),
        ("é = ", 5),
        ("//lshw:*", 9),
        ("namespace::*", 1),
        ("id('x')", 1),
        ("last()", 1),
        ("a : b", 3),
    ] {
        let error = Expression::new(text, &HashMap::new()).expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
    }
}

#[test]
fn nesting_is_bounded() {
    let refused = |text: String| Expression::new(&text, &HashMap::new()).is_err();
    assert!(refused("(".repeat(100_000)));
    assert!(refused("a[".repeat(100_000)));
    assert!(refused("a/".repeat(100_000) + "a"));
    assert!(refused("1+".repeat(100_000) + "1"));
    assert!(refused("(-".repeat(100) + "1" + &")".repeat(100)));
    assert!(!refused("1+".repeat(500) + "1"));
}
