//! A template's text into instructions that pay for what they do.

use super::operators as op;
use super::values::Budget;
use super::{TemplateError, checks, sentence};
use minijinja::machinery::{CodeGenerator, Instruction as I, Instructions, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, Value};
use std::sync::Arc;

/// The template's name in messages of the engine, which are shown without it.
const NAME: &str = "chat";
/// Bounds no real template comes near: the largest have some 50 kB, tags of some hundred tokens, names of 40 bytes
/// and ten branches.
const MAX_SOURCE: usize = 512 << 10;
const MAX_TAG: usize = 4096;
const MAX_NAME: usize = 256;
const MAX_BRANCHES: usize = 1000;
/// Macros and calls inside one another: each keeps all names that the inner ones use.
const MAX_MACROS: usize = 10;

/// Compiles a template. Parsing, compiling and dropping go as deep as the longest tag and the longest chain of
/// `elif`: call it with a stack for that.
pub(super) fn compile(source: &str) -> Result<Instructions<'_>, TemplateError> {
    if source.len() > MAX_SOURCE {
        return Err(TemplateError::Syntax(format!("it has {} bytes, more than {MAX_SOURCE}", source.len())));
    }
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    let syntax = syntax.map_err(|e| TemplateError::Syntax(sentence(&e)))?;
    scan(source, &syntax)?;
    let template = parse(source, NAME, syntax).map_err(|e| TemplateError::Syntax(sentence(&e)))?;
    checks::check(&template)?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&template);
    let (instructions, _) = generator.finish();
    instrument(source, &instructions)
}

/// The error for a template's line.
pub(super) fn refused(line: impl Into<usize>, what: &str) -> TemplateError {
    TemplateError::Syntax(format!("line {}: {what}", line.into()))
}

/// Refuses what nests too deep for the stack, before anything is nested.
fn scan(source: &str, syntax: &SyntaxConfig) -> Result<(), TemplateError> {
    let (mut tag, mut branches, mut macros) = (0, 0, 0usize);
    for token in tokenize(source, false, syntax.clone()) {
        let (token, span) = token.map_err(|e| TemplateError::Syntax(sentence(&e)))?;
        let line = span.start_line;
        tag += 1;
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => tag = 0,
            Token::Ident(name) if name.len() > MAX_NAME => return Err(refused(line, "a name is too long")),
            Token::Ident("elif") if tag == 1 => branches += 1,
            Token::Ident("macro" | "call") if tag == 1 => macros += 1,
            Token::Ident("endmacro" | "endcall") if tag == 1 => macros = macros.saturating_sub(1),
            _ => {}
        }
        if tag > MAX_TAG {
            return Err(refused(line, "a tag is too long"));
        }
        if branches > MAX_BRANCHES {
            return Err(refused(line, "there are too many elif"));
        }
        if macros > MAX_MACROS {
            return Err(refused(line, "macros are nested too deep"));
        }
    }
    Ok(())
}

/// The instructions with payments around what can cost more than an instruction.
///
/// Jumps lead to the payment, so no way goes around it; the engine itself enters a loop again at [`I::PushLoop`],
/// which is why recursion pays for itself.
fn instrument<'s>(source: &'s str, code: &Instructions<'s>) -> Result<Instructions<'s>, TemplateError> {
    // Constants are as large as the text they are written as.
    let constants = Budget::new(64 * source.len() as u64 + 1024);
    let mut parts = Vec::new();
    let mut places = Vec::new();
    let mut place = 0;
    for at in 0.. {
        places.push(place);
        let Some(instruction) = code.get(at) else { break };
        let line = code.get_line(at).unwrap_or(1);
        let previous = at.checked_sub(1).and_then(|at| code.get(at));
        let part = paid(instruction, previous, &constants).map_err(|what| refused(line, what))?;
        place += part.len() as u32;
        parts.push(part);
    }
    let mut out = Instructions::new(NAME, source);
    for (at, part) in (0..).zip(parts) {
        for mut instruction in part {
            match &mut instruction {
                I::Jump(to)
                | I::JumpIfFalse(to)
                | I::JumpIfFalseOrPop(to)
                | I::JumpIfTrueOrPop(to)
                | I::Iterate(to)
                | I::BuildMacro(_, to, _) => *to = places.get(*to as usize).copied().unwrap_or(place),
                _ => {}
            }
            match (code.get_span(at), code.get_line(at)) {
                (Some(span), _) => out.add_with_span(instruction, span),
                (None, Some(line)) => out.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX)),
                (None, None) => out.add(instruction),
            };
        }
    }
    Ok(out)
}

/// An instruction with its payment, or why templates cannot use it.
fn paid<'s>(
    instruction: &I<'s>,
    previous: Option<&I<'s>>,
    constants: &Arc<Budget>,
) -> Result<Vec<I<'s>>, &'static str> {
    let call = |name, operands| I::ApplyFilter(name, Some(operands), !0);
    let check = |name, operands: u16| [call(name, operands), I::UnpackList(operands.into())];
    let this = || instruction.clone();
    let before = |name, operands| {
        let [pay, unpack] = check(name, operands);
        vec![pay, unpack, this()]
    };
    let around = |name, operands| {
        let [pay, unpack] = check(name, operands);
        vec![pay, unpack, this(), call(op::ADOPT, 1)]
    };
    Ok(match instruction {
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::LoadConst(value) => {
            let adopted = constant(value, constants).map_err(|_| "a constant is too large")?;
            vec![I::LoadConst(adopted)]
        }
        I::BuildList(_) | I::BuildTuple(_) => vec![this(), call(op::ADOPT, 1)],
        I::BuildMap(pairs) => vec![I::BuildList(Some(2 * pairs)), call(op::DICT, 1)],
        I::SetAttr(name) => vec![I::LoadConst(Value::from(*name)), call(op::SET, 3), I::DiscardTop],
        I::Enclose(_) => vec![I::LoadConst(Value::from(0)), call(op::ENCLOSE, 1), I::DiscardTop, this()],
        I::Add => around(op::ADD, 2),
        I::Mul => around(op::MUL, 2),
        I::StringConcat => around(op::CONCAT, 2),
        I::Slice => around(op::SLICE, 4),
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte => before(op::COMPARE, 2),
        I::In => before(op::CONTAINS, 2),
        I::CompareAndPreserve(_) => before(op::CHAIN, 2),
        I::GetItem => match previous {
            // Cheap in a text as well, and messages can name items that are looked up without payment.
            Some(I::LoadConst(key))
                if key.as_str().map_or(key.as_usize().is_some_and(|n| n < 64), |k| k.len() <= MAX_NAME) =>
            {
                vec![this()]
            }
            _ => before(op::ITEM, 2),
        },
        // Opening and closing a block is free, and a template can have many thousand.
        I::PushWith => vec![I::LoadConst(Value::from(0)), I::DiscardTop, this()],
        I::PushLoop(_) | I::FastRecurse => vec![call(op::ITERATE, 1), this()],
        // The one argument may be what a recursive loop goes through.
        I::CallFunction(_, Some(1)) => vec![call(op::ITERATE, 1), this()],
        I::CallMethod("cycle", Some(0 | 1)) => return Err("cycle() has no arguments"),
        I::CallMethod("changed" | "cycle", Some(operands)) => before(op::CHANGED, *operands),
        I::MergeKwargs(maps) => before(op::MERGE, u16::try_from(*maps).map_err(|_| "a call has too many arguments")?),
        // What a call's payment looks at would not be known.
        I::UnpackLists(_) => return Err("arguments cannot be unpacked with *"),
        _ => vec![this()],
    })
}

/// A constant as data.
fn constant(value: &Value, constants: &Arc<Budget>) -> Result<Value, Error> {
    if value.as_object().is_none() || value.is_kwargs() {
        return Ok(value.clone());
    }
    let whole = |value: Value| constant(&value, constants);
    match value.kind() {
        ValueKind::Map => {
            let pairs = super::values::pairs(value).map(|(key, value)| Ok((whole(key)?, whole(value)?)));
            constants.dict(pairs.collect::<Result<Vec<_>, Error>>()?)
        }
        _ => constants.sequence(value.try_iter()?.map(whole).collect::<Result<_, _>>()?, value.is_tuple()),
    }
}
