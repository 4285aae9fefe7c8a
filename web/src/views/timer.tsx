export function TimerView({ id }: { id: string }) {
  return <div className="page">{id}</div>;
}
