//! Templates that the engine would not compile or run as it should.

use super::TemplateError;
use super::compile::refused;
use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Stmt};

/// Far more than the few thousand of large templates.
const MAX_WORK: usize = 1_000_000;

/// Refuses a template with a part that would not be compiled or run as it should.
pub(super) fn check(template: &Stmt<'_>) -> Checked<()> {
    Checks::default().statement(template, false)
}

/// Keeps the compiler from three mistakes: it computes constants without fuel, where lists grow beyond their text by
/// being multiplied; it tries again to compute each part of an expression that is none; and it does not close what a
/// loop is left from within.
#[derive(Default)]
struct Checks {
    /// Parts of expressions that are looked at to compute constants, each as often as it is.
    work: usize,
}

/// What the compiler makes of an expression.
#[derive(Clone, Copy, PartialEq)]
enum Constant {
    Not,
    Scalar,
    Container,
}
use Constant::{Container, Not, Scalar};

type Checked<T> = Result<T, TemplateError>;

impl Checks {
    /// `open` tells of a block that is inside the loop and would have to be closed when that is left.
    fn statement(&mut self, stmt: &Stmt<'_>, open: bool) -> Checked<()> {
        match stmt {
            Stmt::Template(s) => self.all(&s.children, open),
            Stmt::EmitExpr(s) => self.one(&s.expr),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::Continue(s) if open => Err(refused(s.span().start_line, "continue leaves a block inside its loop")),
            Stmt::Break(s) if open => Err(refused(s.span().start_line, "break leaves a block inside its loop")),
            Stmt::Continue(_) | Stmt::Break(_) => Ok(()),
            Stmt::ForLoop(s) => {
                self.one(&s.iter)?;
                s.filter_expr.iter().try_for_each(|e| self.one(e))?;
                self.all(&s.body, false)?;
                self.all(&s.else_body, open)
            }
            Stmt::IfCond(s) => {
                self.one(&s.expr)?;
                self.all(&s.true_body, open)?;
                self.all(&s.false_body, open)
            }
            Stmt::WithBlock(s) => {
                s.assignments.iter().try_for_each(|(_, value)| self.one(value))?;
                self.all(&s.body, true)
            }
            Stmt::Set(s) => self.one(&s.expr),
            Stmt::SetBlock(s) => {
                s.filter.iter().try_for_each(|e| self.one(e))?;
                self.all(&s.body, true)
            }
            Stmt::AutoEscape(s) => Err(refused(s.span().start_line, "autoescape is not supported")),
            Stmt::FilterBlock(s) => {
                self.one(&s.filter)?;
                self.all(&s.body, true)
            }
            Stmt::Macro(s) => self.defined(s),
            Stmt::CallBlock(s) => {
                self.called(&s.call)?;
                self.defined(&s.macro_decl)
            }
            Stmt::Do(s) => self.called(&s.call),
        }
    }

    fn all(&mut self, body: &[Stmt<'_>], open: bool) -> Checked<()> {
        body.iter().try_for_each(|stmt| self.statement(stmt, open))
    }

    fn defined(&mut self, declared: &ast::Macro<'_>) -> Checked<()> {
        declared.defaults.iter().try_for_each(|e| self.one(e))?;
        self.all(&declared.body, false)
    }

    fn called(&mut self, call: &ast::Call<'_>) -> Checked<()> {
        self.one(&call.expr)?;
        self.arguments(&call.args)
    }

    fn arguments(&mut self, args: &[CallArg<'_>]) -> Checked<()> {
        args.iter().try_for_each(|arg| match arg {
            CallArg::Pos(e) | CallArg::Kwarg(_, e) | CallArg::PosSplat(e) | CallArg::KwargSplat(e) => self.one(e),
        })
    }

    fn one(&mut self, expr: &Expr<'_>) -> Checked<()> {
        self.expression(expr).map(drop)
    }

    /// Only of literals is a container a constant.
    fn container<'e>(&mut self, items: impl Iterator<Item = &'e Expr<'e>>) -> Checked<(Constant, usize)> {
        let (mut constant, mut size) = (Container, 1);
        for item in items {
            self.one(item)?;
            size += 1;
            if !matches!(item, Expr::Const(_)) {
                constant = Not;
            }
        }
        Ok((constant, size))
    }

    /// An operator's parts, looked at for each operator around them.
    fn operator(&mut self, expr: &Expr<'_>, size: usize) -> Checked<usize> {
        self.work += size;
        if self.work > MAX_WORK {
            return Err(refused(expr.span().start_line, "expressions are too long"));
        }
        Ok(size + 1)
    }

    /// An expression, and the size of what the compiler looks at to compute it.
    fn expression(&mut self, expr: &Expr<'_>) -> Checked<(Constant, usize)> {
        match expr {
            Expr::Const(_) => return Ok((Scalar, 1)),
            Expr::Var(_) => {}
            Expr::List(e) => return self.container(e.items.iter()),
            Expr::Tuple(e) => return self.container(e.items.iter()),
            Expr::Map(e) => return self.container(e.keys.iter().chain(&e.values)),
            Expr::UnaryOp(e) => {
                let (constant, size) = self.expression(&e.expr)?;
                return Ok((if constant == Not { Not } else { Scalar }, self.operator(expr, size)?));
            }
            Expr::BinOp(e) => {
                let ((left, size), (right, more)) = (self.expression(&e.left)?, self.expression(&e.right)?);
                let size = self.operator(expr, size + more)?;
                let container = left == Container || right == Container;
                let constant = match e.op {
                    _ if left == Not || right == Not => Not,
                    BinOpKind::Mul if container => {
                        return Err(refused(expr.span().start_line, "a list of constants is repeated"));
                    }
                    BinOpKind::Add | BinOpKind::ScAnd | BinOpKind::ScOr if container => Container,
                    _ => Scalar,
                };
                return Ok((constant, size));
            }
            Expr::Compare(e) => {
                let (mut constant, mut size) = self.expression(&e.expr)?;
                for op in &e.ops {
                    let (right, more) = self.expression(&op.expr)?;
                    size += more;
                    constant = if constant == Not || right == Not { Not } else { Scalar };
                }
                return Ok((constant, self.operator(expr, size)?));
            }
            Expr::Slice(e) => {
                self.one(&e.expr)?;
                [&e.start, &e.stop, &e.step].into_iter().flatten().try_for_each(|e| self.one(e))?;
            }
            Expr::IfExpr(e) => {
                [&e.test_expr, &e.true_expr].into_iter().chain(&e.false_expr).try_for_each(|e| self.one(e))?;
            }
            Expr::Filter(e) => {
                e.expr.iter().try_for_each(|e| self.one(e))?;
                self.arguments(&e.args)?;
            }
            Expr::Test(e) => {
                self.one(&e.expr)?;
                self.arguments(&e.args)?;
            }
            Expr::GetAttr(e) => self.one(&e.expr)?,
            Expr::GetItem(e) => {
                self.one(&e.expr)?;
                self.one(&e.subscript_expr)?;
            }
            Expr::Call(e) => self.called(e)?,
        }
        Ok((Not, 1))
    }
}
