//! What kinds of expressions cost on machines of one model, in steps: values that set each apart, and what
//! leads nowhere, are looked at once for all of them.
#![allow(missing_docs)]

mod common;

use common::{expression, image};
use tagmill_kernel::budget::Budget;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::plan::evaluate;

const MACHINES: usize = 200;

fn fleet() -> PartitionImage {
    fleet_of(|_, _| String::new())
}

/// Machines whose disks have something of their own.
fn fleet_of(own: impl Fn(usize, usize) -> String) -> PartitionImage {
    let machine = |n: usize| {
        let disks: String = (0..20)
            .map(|disk| {
                format!(
                    "<node id='disk:{disk}' class='disk'><size units='bytes'>{disk}</size>\
                     <v>V</v>{}</node>",
                    own(n, disk)
                )
            })
            .collect();
        format!(
            "<list><node id='host-{n:03}' class='system'><description>Rack Mount Chassis\
             </description><product>P</product><serial>S{n:03}</serial>{disks}</node></list>"
        )
    };
    let machines: Vec<String> = (0..MACHINES).map(machine).collect();
    let image = image(&machines.iter().map(String::as_str).collect::<Vec<_>>());
    // The second question looks for what they have in common.
    for _ in 0..2 {
        evaluate(&image, &expression("//node"), None, &Budget::new(u64::MAX)).expect("no bound");
    }
    image
}

/// Each expression within so many steps a machine, the making of tables and marks included.
fn costs_at_most(steps: u64, texts: &[&str]) {
    asked_of(&fleet(), steps, texts);
}

fn asked_of(image: &PartitionImage, steps: u64, texts: &[&str]) {
    for text in texts {
        let budget = Budget::new(steps * MACHINES as u64);
        assert!(evaluate(image, &expression(text), None, &budget).is_ok(), "{text}");
    }
}

#[test]
fn what_leads_nowhere_costs_nothing() {
    costs_at_most(
        3,
        &[
            "//node[@id[node]] = //v[size/preceding::*[count(preceding::*) = position()]]",
            "//serial/node[preceding::node = following::node]",
            "//@id[2][.. = //serial] | //serial[@*[last() - 1]]",
            "string(//node[@class = 'absent'][following::node[2]]) = //size/v",
            "//*[lang(string(.))]",
            "//node[count(preceding::*) < 0] or count(//v[following::node[3]]) < 0",
            "//*[concat(@x, v/size) = 'x'][preceding::node[last()]]",
        ],
    );
}

/// Where a function of a value, or what another set can have, does not tell machines apart.
#[test]
fn values_that_set_machines_apart_cost_a_look() {
    costs_at_most(
        30,
        &[
            "//node[translate(., 'abc', 'xy') = 'x']/size",
            "//node[normalize-space(.) = 'x' or substring-before(., ' ') = 'x']",
            "//*[number(.) > 100] or sum(//*) > 1000",
            "//* >= 100 or //node[string-length(serial) = 9]",
            "//* = //@units",
            "//node[serial = //size]",
            "concat(//node, '-', //v) = 'x-y'",
        ],
    );
}

/// Nodes with equal lists of what they are numbered among have equal results.
#[test]
fn positions_along_axes_cost_what_differs() {
    costs_at_most(
        15,
        &[
            "//node[following::node[2]/@class = 'system']",
            "//v/preceding::*[last()][@id = 'disk:9']",
            "//size/ancestor::node[position() < 3][@class = 'system']",
            "//node/descendant::*[last() - 1][. = 'V 1']",
            "//node[(.//v | .//size)[3] = 'V 1']",
            "(//node)[position() mod 2 = 0]/size > 99",
        ],
    );
}

/// Which of the attributes that set machines apart has the wanted value is looked up, not read.
#[test]
fn an_equal_attribute_is_looked_up() {
    costs_at_most(
        3,
        &[
            "//node[@id = 'disk:3']/size > 1",
            "//node[@id = 'disk:4' and @class = 'disk']/size > 1",
            "//node[@id = 'host-003']/v",
        ],
    );
}

/// Where every machine differs at one element, the others are still asked about once for all.
#[test]
fn what_differs_is_asked_about_and_what_is_beside_it_is_not() {
    let image = fleet_of(|n, disk| format!("<serial>D{n:03}-{disk}</serial>"));
    asked_of(&image, 400, &["//node[@id != node/@id]/node[size > 98]/following::v = 'W'"]);
}

/// What a machine has of its own matters where an expression looks at it, not wherever it is in sight; and what
/// is decided beforehand is not looked for.
#[test]
fn what_is_in_sight_costs_nothing_where_it_is_not_looked_at() {
    let image = fleet_of(|n, disk| match disk {
        0 => format!("{}<w>W{n}</w>", "<x/>".repeat(n % 9)),
        _ => String::new(),
    });
    asked_of(
        &image,
        15,
        &[
            "//*[self::v > count(//*)]",
            "//node[@id = //@id][size > 98]",
            "//node[following::v = substring(//w, 1, 0)]",
        ],
    );
}

/// Elements that an attribute names are looked for where that attribute is.
#[test]
fn what_an_attribute_names_is_not_looked_for_elsewhere() {
    let image = fleet_of(|n, disk| format!("<serial>D{n:03}-{disk}</serial>"));
    asked_of(&image, 60, &["string-length((//node[@class = 'system'])[last()]) > 11"]);
}
