//! Commands that no rule may ask about.

use super::*;

#[test]
fn trial_runs_are_not_asked_about() {
    all(
        &builtin(),
        Action::Allow,
        &[
            "git push --dry-run",
            "git push --force --dry-run",
            "git push -n -f origin main",
            "git push origin :old --dry-run",
            "cargo publish --dry-run",
            "cargo publish --allow-dirty --dry-run",
            "npm publish --dry-run",
            "pnpm publish --dry-run --tag x",
            "kubectl --dry-run=client apply -f x.yaml",
            "kubectl apply -f x.yaml --dry-run=server",
            "kubectl create deployment x --image=y --dry-run=client -o yaml",
            "helm upgrade --install x ./chart --dry-run",
            "helm upgrade --install --dry-run x ./chart",
            "aws ec2 run-instances --dry-run --image-id x",
            "aws s3 rm s3://b/x --dryrun",
        ],
    );
    all(
        &builtin(),
        Action::Ask,
        &[
            "git push -f --dry-run --no-dry-run",
            "git push -f -o --dry-run origin",
            "git push -f -- --dry-run",
            "git push -f --dry-run $X",
            "git push -f --dry-run && git push -f",
            "npm publish --dry-run false",
            "npm publish --tag --dry-run",
            "npm publish --dry-run=false",
            "kubectl apply -f x --dry-run=none",
            "kubectl -n --dry-run delete pod x",
            "kubectl -n x delete pod y",
            "yarn publish --dry-run",
            "terraform apply --dry-run",
            "sudo git push --dry-run",
        ],
    );
}
