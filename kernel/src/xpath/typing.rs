//! The conversions between types, and the core function library.

use super::ir::{Arith, BoolExpr, Cmp, NameKind, NodeSet, NumExpr, Rounding, StrExpr};

/// An expression of known type.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(BoolExpr),
    Num(NumExpr),
    Str(StrExpr),
    Set(NodeSet),
}

impl Value {
    pub fn literal(text: &str) -> Self {
        Value::Str(StrExpr::Const(text.to_owned()))
    }

    pub fn into_bool(self) -> BoolExpr {
        match self {
            Value::Bool(expr) => expr,
            Value::Num(expr) => BoolExpr::Number(expr),
            Value::Str(expr) => BoolExpr::Text(expr),
            Value::Set(set) => BoolExpr::Exists(set),
        }
    }

    pub fn into_num(self) -> NumExpr {
        match self {
            Value::Num(expr) => expr,
            Value::Bool(expr) => NumExpr::Bool(Box::new(expr)),
            Value::Str(expr) => NumExpr::Text(Box::new(expr)),
            Value::Set(set) => NumExpr::Text(Box::new(StrExpr::First(set))),
        }
    }

    pub fn into_str(self) -> StrExpr {
        match self {
            Value::Str(expr) => expr,
            Value::Num(expr) => StrExpr::Number(Box::new(expr)),
            Value::Bool(expr) => StrExpr::Bool(Box::new(expr)),
            Value::Set(set) => StrExpr::First(set),
        }
    }

    pub fn arithmetic(self, arith: Arith, other: Value) -> Value {
        Value::Num(NumExpr::Arith(arith, Box::new(self.into_num()), Box::new(other.into_num())))
    }

    /// Section 3.4 of the recommendation.
    pub fn compare(self, cmp: Cmp, other: Value) -> BoolExpr {
        use Value::{Bool, Num, Set, Str};
        let unequal = cmp == Cmp::Ne;
        match (self, other) {
            (Set(a), Set(b)) => BoolExpr::Sets(cmp, a, b),
            (Set(set), Bool(b)) => {
                Value::compare_scalars(Bool(BoolExpr::Exists(set)), cmp, Bool(b))
            }
            (Bool(a), Set(set)) => {
                Value::compare_scalars(Bool(a), cmp, Bool(BoolExpr::Exists(set)))
            }
            (Set(set), Num(number)) => BoolExpr::SetNumber(cmp, set, number),
            (Num(number), Set(set)) => BoolExpr::SetNumber(cmp.flipped(), set, number),
            (Set(set), Str(text)) | (Str(text), Set(set)) if cmp.is_equality() => {
                BoolExpr::SetText(unequal, set, text)
            }
            (Set(set), Str(text)) => BoolExpr::SetNumber(cmp, set, NumExpr::Text(Box::new(text))),
            (Str(text), Set(set)) => {
                BoolExpr::SetNumber(cmp.flipped(), set, NumExpr::Text(Box::new(text)))
            }
            (a, b) => Value::compare_scalars(a, cmp, b),
        }
    }

    fn compare_scalars(a: Value, cmp: Cmp, b: Value) -> BoolExpr {
        let as_numbers = |a: Value, b: Value| BoolExpr::Numbers(cmp, a.into_num(), b.into_num());
        if !cmp.is_equality() {
            return as_numbers(a, b);
        }
        match (a, b) {
            // Two booleans are equal when their numbers are.
            (a, b) if matches!(a, Value::Bool(_)) || matches!(b, Value::Bool(_)) => {
                as_numbers(Value::Bool(a.into_bool()), Value::Bool(b.into_bool()))
            }
            (Value::Str(a), Value::Str(b)) => BoolExpr::Texts(cmp == Cmp::Ne, a, b),
            (a, b) => as_numbers(a, b),
        }
    }
}

/// A call of a core function, or why it is refused.
pub fn call(name: &str, arguments: Vec<Value>) -> Result<Value, String> {
    let count = arguments.len();
    let mut arguments = arguments.into_iter();
    let mut next = || arguments.next().unwrap_or_else(|| Value::Set(NodeSet::context()));
    let allowed = match name {
        "true" | "false" | "position" | "last" => 0..=0,
        "not" | "boolean" | "count" | "sum" | "floor" | "ceiling" | "round" | "lang" => 1..=1,
        "string" | "number" | "string-length" | "normalize-space" | "local-name" | "name"
        | "namespace-uri" => 0..=1,
        "contains" | "starts-with" | "substring-before" | "substring-after" => 2..=2,
        "translate" => 3..=3,
        "substring" => 2..=3,
        "concat" => 2..=usize::MAX,
        "id" => return Err("id() is left to lxml".into()),
        _ => return Err(format!("there is no function '{name}'")),
    };
    if !allowed.contains(&count) {
        return Err(format!("'{name}' does not take {count} arguments"));
    }
    let boxed = Box::new;
    let result = match name {
        "true" => Value::Bool(BoolExpr::Const(true)),
        "false" => Value::Bool(BoolExpr::Const(false)),
        "not" => Value::Bool(BoolExpr::Not(Box::new(next().into_bool()))),
        "boolean" => Value::Bool(next().into_bool()),
        "lang" => Value::Bool(BoolExpr::Lang(next().into_str())),
        "contains" => Value::Bool(BoolExpr::Contains(next().into_str(), next().into_str())),
        "starts-with" => Value::Bool(BoolExpr::StartsWith(next().into_str(), next().into_str())),
        "position" => Value::Num(NumExpr::Position),
        "last" => Value::Num(NumExpr::Last),
        "number" => Value::Num(next().into_num()),
        "count" | "sum" => match next() {
            Value::Set(set) if name == "count" => Value::Num(NumExpr::Count(set)),
            Value::Set(set) => Value::Num(NumExpr::Sum(set)),
            _ => return Err(format!("'{name}' takes a node-set")),
        },
        "floor" => Value::Num(NumExpr::Round(Rounding::Floor, Box::new(next().into_num()))),
        "ceiling" => Value::Num(NumExpr::Round(Rounding::Ceiling, Box::new(next().into_num()))),
        "round" => Value::Num(NumExpr::Round(Rounding::Round, Box::new(next().into_num()))),
        "string-length" => Value::Num(NumExpr::Length(boxed(next().into_str()))),
        "string" => Value::Str(next().into_str()),
        "normalize-space" => Value::Str(StrExpr::Normalize(boxed(next().into_str()))),
        "substring-before" => {
            Value::Str(StrExpr::Before(boxed(next().into_str()), boxed(next().into_str())))
        }
        "substring-after" => {
            Value::Str(StrExpr::After(boxed(next().into_str()), boxed(next().into_str())))
        }
        "translate" => {
            let (text, from, to) = (next().into_str(), next().into_str(), next().into_str());
            Value::Str(StrExpr::Translate(boxed(text), boxed(from), boxed(to)))
        }
        "substring" => {
            let (text, from) = (next().into_str(), next().into_num());
            let length = (count == 3).then(|| Box::new(next().into_num()));
            Value::Str(StrExpr::Substring(boxed(text), Box::new(from), length))
        }
        "concat" => Value::Str(StrExpr::Concat(arguments.map(Value::into_str).collect())),
        _ => match (name, next()) {
            ("local-name", Value::Set(set)) => Value::Str(StrExpr::Name(NameKind::Local, set)),
            ("name", Value::Set(set)) => Value::Str(StrExpr::Name(NameKind::Qualified, set)),
            ("namespace-uri", Value::Set(set)) => Value::Str(StrExpr::Name(NameKind::Uri, set)),
            _ => return Err(format!("'{name}' takes a node-set")),
        },
    };
    Ok(result)
}
