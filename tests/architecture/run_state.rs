//! A transition changes the state of a run through methods of `RunState`, beside the logic of the
//! field. Events change it in `apply`, also that of a job.

use syn::{
    BinOp, Expr, ExprAssign, ExprBinary, ItemImpl, Member, Type, spanned::Spanned, visit::Visit,
};

use super::{MACHINE, assert_none, crate_files, production};

/// Finds assignments to the state of a run in the methods of transitions and in the handlers of jobs.
struct Assignments {
    /// Whether the code belongs to `RunState` itself.
    is_of_state: bool,
    lines: Vec<usize>,
}

impl Assignments {
    fn in_file(text: &str) -> Vec<usize> {
        let mut assignments = Self {
            is_of_state: false,
            lines: Vec::new(),
        };
        let file = syn::parse_file(text).unwrap();
        assignments.visit_file(&file);
        assignments.lines
    }

    fn check(&mut self, target: &Expr) {
        let fields = fields_of(target);
        let is_state = fields.first().is_some_and(|first| first == "state");
        // The compiler keeps the states of the jobs apart.
        let is_of_job = fields.get(1).is_some_and(|second| second == "jobs");
        if is_state && fields.len() > 1 && !is_of_job && !self.is_of_state {
            self.lines.push(target.span().start().line);
        }
    }
}

impl<'a> Visit<'a> for Assignments {
    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let is_of_state = match &*item.self_ty {
            Type::Path(path) => path.path.is_ident("RunState") && item.trait_.is_none(),
            _ => false,
        };
        let outer = std::mem::replace(&mut self.is_of_state, is_of_state);
        syn::visit::visit_item_impl(self, item);
        self.is_of_state = outer;
    }

    fn visit_expr_assign(&mut self, assign: &'a ExprAssign) {
        self.check(&assign.left);
        syn::visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_binary(&mut self, binary: &'a ExprBinary) {
        let assigns = matches!(
            binary.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::BitAndAssign(_)
        );
        if assigns {
            self.check(&binary.left);
        }
        syn::visit::visit_expr_binary(self, binary);
    }
}

/// Returns the path of fields that an expression names, from the state on: `self.state.turn.number`
/// has the fields `state`, `turn` and `number`.
fn fields_of(expr: &Expr) -> Vec<String> {
    match expr {
        Expr::Field(field) => {
            let mut fields = fields_of(&field.base);
            match &field.member {
                Member::Named(name) => fields.push(name.to_string()),
                Member::Unnamed(index) => fields.push(index.index.to_string()),
            }
            fields
        }
        Expr::Index(index) => fields_of(&index.expr),
        Expr::Path(path) if path.path.is_ident("state") => vec!["state".to_owned()],
        _ => Vec::new(),
    }
}

#[test]
fn transitions_change_the_state_through_its_methods() {
    let state_folder = format!("{MACHINE}/state");
    // It builds a state.
    let replay = format!("{MACHINE}/replay.rs");
    let mut findings = Vec::new();
    for source in crate_files() {
        let path = &source.path;
        if !path.starts_with(MACHINE) || path.starts_with(&state_folder) || *path == replay {
            continue;
        }
        let text = production(&source.text).join("\n");
        for line in Assignments::in_file(&text) {
            findings.push(format!(
                "{path}:{line}: assigns to the state of a run: call a method of the owner of the field"
            ));
        }
    }
    assert_none(findings);
}

#[test]
fn assignment_check_finds_exactly_the_wrong_lines() {
    let text = "
        impl Transition<'_, '_> {
            fn halt(&mut self) {
                self.state.phase = Phase::Halted;
                self.state.calls[0].count += 1;
                let state = &mut self.state;
                state.turn.number = 1;
                state.jobs.learn = Progress::Ended;
                self.step = Step::default();
                self.state.halt();
            }
        }
        impl Job for Learn {
            fn ended(transition: &mut Transition<'_, '_>) {
                transition.state.answer.text = String::new();
            }
        }
        impl RunState {
            fn restore(state: &mut Self) {
                state.phase = Phase::New;
            }
        }
    ";
    assert_eq!(Assignments::in_file(text), [4, 5, 7, 15]);
}
