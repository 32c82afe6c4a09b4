//! The grammar of XPath 1.0, by recursive descent.

use std::collections::HashMap;

use super::ir::{Arith, Axis, BoolExpr, Cmp, NodeSet, NumExpr, Start, Step, Test, Wanted};
use super::lexer::{Spanned, Token, refused, tokens};
use super::typing::{Value, call};
use crate::error::ExpressionRefused;
use crate::xml::chars::is_space;

/// Nesting of parentheses, predicates and arguments. Each level costs a bounded piece of stack, and
/// what a person writes stays below ten.
const MAX_DEPTH: usize = 48;
/// Operators of one kind in a row, which nest as deep: `a and b and c ...`.
const MAX_CHAIN: usize = 512;
/// The prefix that reaches elements of no namespace.
const NO_NAMESPACE: &str = "lshw";
const XML_URI: &str = "http://www.w3.org/XML/1998/namespace";

type Parsed<T> = Result<T, ExpressionRefused>;

/// Compiles `boolean(text)`.
///
/// Gives the operators and the table of names that their node tests refer to.
pub fn parse(text: &str, namespaces: &HashMap<String, String>) -> Parsed<(BoolExpr, Vec<Wanted>)> {
    let tokens = tokens(text)?;
    let wanted = Vec::new();
    let mut parser =
        Parser { text, tokens, at: 0, depth: 0, chain: 0, predicates: 0, namespaces, wanted };
    let value = parser.expression()?;
    match parser.peek() {
        Token::End => Ok((value.into_bool(), parser.wanted)),
        _ => parser.fail("an operator or the end is expected"),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Spanned<'a>>,
    at: usize,
    depth: usize,
    chain: usize,
    predicates: usize,
    namespaces: &'a HashMap<String, String>,
    wanted: Vec<Wanted>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &Token<'a> {
        &self.tokens[self.at].0
    }

    fn peek_after(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at + 1).map(|(token, _)| token)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at].0.clone();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(found) if *found == symbol);
        if found {
            self.at += 1;
        }
        found
    }

    fn operator(&mut self, names: &[&'static str]) -> Parsed<Option<&'static str>> {
        let found = match self.peek() {
            Token::Operator(found) | Token::Symbol(found) => {
                names.iter().find(|name| *name == found)
            }
            _ => None,
        };
        let Some(found) = found else { return Ok(None) };
        // libxml2 wants no boundary after a word; such texts are its business.
        let end = self.tokens[self.at].1 + found.len();
        self.at += 1;
        self.chain += 1;
        if self.chain > MAX_CHAIN {
            return self.fail("too many operators for the kernel");
        }
        debug_assert!(end <= self.text.len());
        Ok(Some(found))
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.symbol(symbol) { Ok(()) } else { self.fail(format!("'{symbol}' is expected")) }
    }

    fn fail<T>(&self, reason: impl Into<String>) -> Parsed<T> {
        Err(refused(self.text, self.tokens[self.at].1, reason))
    }

    fn expression(&mut self) -> Parsed<Value> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail("nested too deeply for the kernel");
        }
        let value = self.or()?;
        self.depth -= 1;
        Ok(value)
    }

    fn or(&mut self) -> Parsed<Value> {
        let mut left = self.and()?;
        while self.operator(&["or"])?.is_some() {
            let right = self.and()?.into_bool();
            left = Value::Bool(BoolExpr::Or(Box::new(left.into_bool()), Box::new(right)));
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Value> {
        let mut left = self.equality()?;
        while self.operator(&["and"])?.is_some() {
            let right = self.equality()?.into_bool();
            left = Value::Bool(BoolExpr::And(Box::new(left.into_bool()), Box::new(right)));
        }
        Ok(left)
    }

    fn equality(&mut self) -> Parsed<Value> {
        let mut left = self.relational()?;
        while let Some(operator) = self.operator(&["=", "!="])? {
            let cmp = if operator == "=" { Cmp::Eq } else { Cmp::Ne };
            left = Value::Bool(left.compare(cmp, self.relational()?));
        }
        Ok(left)
    }

    fn relational(&mut self) -> Parsed<Value> {
        let mut left = self.additive()?;
        while let Some(operator) = self.operator(&["<", "<=", ">", ">="])? {
            let cmp = match operator {
                "<" => Cmp::Lt,
                "<=" => Cmp::Le,
                ">" => Cmp::Gt,
                _ => Cmp::Ge,
            };
            left = Value::Bool(left.compare(cmp, self.additive()?));
        }
        Ok(left)
    }

    fn additive(&mut self) -> Parsed<Value> {
        let mut left = self.multiplicative()?;
        while let Some(operator) = self.operator(&["+", "-"])? {
            let arith = if operator == "+" { Arith::Add } else { Arith::Sub };
            left = left.arithmetic(arith, self.multiplicative()?);
        }
        Ok(left)
    }

    fn multiplicative(&mut self) -> Parsed<Value> {
        let mut left = self.unary()?;
        while let Some(operator) = self.operator(&["*", "div", "mod"])? {
            let arith = match operator {
                "*" => Arith::Mul,
                "div" => Arith::Div,
                _ => Arith::Mod,
            };
            left = left.arithmetic(arith, self.unary()?);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Value> {
        let mut negative = false;
        let mut signed = false;
        while self.symbol("-") {
            negative = !negative;
            signed = true;
        }
        let value = self.union()?;
        Ok(match (signed, negative) {
            (false, _) => value,
            (true, false) => Value::Num(value.into_num()),
            (true, true) => Value::Num(NumExpr::Neg(Box::new(value.into_num()))),
        })
    }

    fn union(&mut self) -> Parsed<Value> {
        let mut left = self.path()?;
        while self.operator(&["|"])?.is_some() {
            let right = self.path()?;
            let (Value::Set(a), Value::Set(b)) = (left, right) else {
                return self.fail("'|' joins node-sets only");
            };
            left = Value::Set(NodeSet::Union(Box::new(a), Box::new(b)));
        }
        Ok(left)
    }

    fn starts_filter(&self) -> bool {
        match self.peek() {
            Token::Number(_) | Token::Literal(_) => true,
            Token::Symbol(symbol) => matches!(*symbol, "(" | "$"),
            Token::Name(name) => {
                let node_type =
                    matches!(*name, "node" | "text" | "comment" | "processing-instruction");
                !node_type && self.peek_after() == Some(&Token::Symbol("("))
            }
            _ => false,
        }
    }

    fn path(&mut self) -> Parsed<Value> {
        if !self.starts_filter() {
            return Ok(Value::Set(self.location_path()?));
        }
        let mut value = self.primary()?;
        while self.peek() == &Token::Symbol("[") {
            let Value::Set(set) = value else {
                return self.fail("only a node-set takes a predicate");
            };
            let predicate = self.predicate()?;
            value = Value::Set(NodeSet::Filter(Box::new(set), Box::new(predicate)));
        }
        if !matches!(self.peek(), Token::Symbol("/" | "//")) {
            return Ok(value);
        }
        let Value::Set(set) = value else {
            return self.fail("only a node-set takes a step");
        };
        let mut steps = Vec::new();
        self.more_steps(&mut steps)?;
        Ok(Value::Set(NodeSet::Path(Start::Set(Box::new(set)), steps)))
    }

    fn primary(&mut self) -> Parsed<Value> {
        let start = self.at;
        match self.next() {
            Token::Number(value) => Ok(Value::Num(NumExpr::Const(value))),
            Token::Literal(text) => Ok(Value::literal(text)),
            Token::Symbol("(") => {
                let value = self.expression()?;
                self.expect(")")?;
                Ok(value)
            }
            // libxml2 gives the outermost context no position; it fails where one is asked for.
            Token::Name(name @ ("position" | "last")) if self.predicates == 0 => {
                self.at = start;
                self.fail(format!("{name}() has no meaning outside of a predicate"))
            }
            Token::Name(name) => {
                self.expect("(")?;
                let mut arguments = Vec::new();
                if !self.symbol(")") {
                    loop {
                        arguments.push(self.expression()?);
                        if self.symbol(")") {
                            break;
                        }
                        self.expect(",")?;
                    }
                }
                call(name, arguments)
                    .map_err(|reason| refused(self.text, self.tokens[start].1, reason))
            }
            _ => {
                self.at = start;
                self.fail("variables are not supported")
            }
        }
    }

    fn location_path(&mut self) -> Parsed<NodeSet> {
        let mut steps = Vec::new();
        if self.symbol("/") {
            if self.starts_step() {
                self.step(&mut steps)?;
                self.more_steps(&mut steps)?;
            }
            return Ok(NodeSet::Path(Start::Root, steps));
        }
        if matches!(self.peek(), Token::Symbol("//")) {
            self.more_steps(&mut steps)?;
            return Ok(NodeSet::Path(Start::Root, steps));
        }
        self.step(&mut steps)?;
        self.more_steps(&mut steps)?;
        Ok(NodeSet::Path(Start::Context, steps))
    }

    fn starts_step(&self) -> bool {
        match self.peek() {
            Token::Name(_) | Token::Star => true,
            Token::Symbol(symbol) => matches!(*symbol, "." | ".." | "@"),
            _ => false,
        }
    }

    fn more_steps(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        loop {
            if self.symbol("//") {
                steps.push(Step::all(Axis::DescendantOrSelf));
            } else if !self.symbol("/") {
                return Ok(());
            }
            self.step(steps)?;
        }
    }

    fn step(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        if self.symbol(".") {
            steps.push(Step::all(Axis::SelfNode));
            return Ok(());
        }
        if self.symbol("..") {
            steps.push(Step::all(Axis::Parent));
            return Ok(());
        }
        let axis = self.axis()?;
        let test = self.node_test()?;
        let mut predicates = Vec::new();
        while self.peek() == &Token::Symbol("[") {
            predicates.push(self.predicate()?);
        }
        if steps.len() >= MAX_CHAIN {
            return self.fail("too many steps for the kernel");
        }
        push_step(steps, Step::new(axis, test, predicates));
        Ok(())
    }

    fn axis(&mut self) -> Parsed<Axis> {
        if self.symbol("@") {
            return Ok(Axis::Attribute);
        }
        if self.peek_after() != Some(&Token::Symbol("::")) {
            return Ok(Axis::Child);
        }
        let Token::Name(name) = *self.peek() else { return Ok(Axis::Child) };
        let axis = match name {
            "ancestor" => Axis::Ancestor,
            "ancestor-or-self" => Axis::AncestorOrSelf,
            "attribute" => Axis::Attribute,
            "child" => Axis::Child,
            "descendant" => Axis::Descendant,
            "descendant-or-self" => Axis::DescendantOrSelf,
            "following" => Axis::Following,
            "following-sibling" => Axis::FollowingSibling,
            "parent" => Axis::Parent,
            "preceding" => Axis::Preceding,
            "preceding-sibling" => Axis::PrecedingSibling,
            "self" => Axis::SelfNode,
            "namespace" => return self.fail("the namespace axis is left to lxml"),
            _ => return self.fail(format!("there is no axis '{name}'")),
        };
        self.at += 2;
        Ok(axis)
    }

    fn node_test(&mut self) -> Parsed<Test> {
        let name = match *self.peek() {
            Token::Star => {
                self.at += 1;
                return Ok(Test::Any);
            }
            Token::Name(name) => name,
            _ => return self.fail("a step is expected"),
        };
        self.at += 1;
        if self.peek() == &Token::Symbol("(") {
            return self.node_type(name);
        }
        if self.peek() != &Token::Symbol(":") {
            return Ok(Test::Name(self.want((String::new(), Some(name.to_owned())))));
        }
        // A qualified name is written without spaces.
        let (start, colon) = (self.tokens[self.at - 1].1, self.tokens[self.at].1);
        let after = self.text.as_bytes().get(colon + 1);
        if start + name.len() != colon || after.is_none_or(|&byte| is_space(byte)) {
            return self.fail("a qualified name is written without spaces");
        }
        self.at += 1;
        let uri = self.uri(name);
        match self.next() {
            Token::Star if uri.is_empty() => self.fail("'lshw:*' is left to lxml"),
            Token::Star => Ok(Test::AnyIn(self.want((uri, None)))),
            Token::Name(local) => Ok(Test::Name(self.want((uri, Some(local.to_owned()))))),
            _ => self.fail("a local name is expected"),
        }
    }

    /// The number of a name in the expression's table.
    fn want(&mut self, name: Wanted) -> usize {
        let known = self.wanted.iter().position(|wanted| *wanted == name);
        known.unwrap_or_else(|| {
            self.wanted.push(name);
            self.wanted.len() - 1
        })
    }

    fn uri(&self, prefix: &str) -> String {
        match self.namespaces.get(prefix) {
            Some(uri) => uri.clone(),
            None if prefix == NO_NAMESPACE => String::new(),
            None if prefix == "xml" => XML_URI.to_owned(),
            None => prefix.to_owned(),
        }
    }

    fn node_type(&mut self, name: &str) -> Parsed<Test> {
        let test = match name {
            "node" => Test::Node,
            "text" => Test::Text,
            "comment" => Test::Comment,
            "processing-instruction" => Test::Instruction(None),
            _ => return self.fail("a function cannot be a step"),
        };
        self.expect("(")?;
        let test = match (test, self.peek()) {
            (Test::Instruction(None), Token::Literal(target)) => {
                let target = (*target).to_owned();
                self.at += 1;
                Test::Instruction(Some(target))
            }
            (test, _) => test,
        };
        self.expect(")")?;
        Ok(test)
    }

    fn predicate(&mut self) -> Parsed<BoolExpr> {
        self.expect("[")?;
        self.predicates += 1;
        let value = self.expression()?;
        self.predicates -= 1;
        self.expect("]")?;
        Ok(match value {
            Value::Num(number) => BoolExpr::Numbers(Cmp::Eq, NumExpr::Position, number),
            other => other.into_bool(),
        })
    }
}

/// Appends a step; `//x` becomes one descendant step where no position can tell the difference.
fn push_step(steps: &mut Vec<Step>, mut step: Step) {
    let slashes = steps.last().is_some_and(Step::is_slashes);
    if slashes && step.axis == Axis::Child && !step.positional {
        steps.pop();
        step.axis = Axis::Descendant;
    }
    steps.push(step);
}
